"""A fuzz target: libFuzzer's program, and a test that gives it its kept inputs in every build."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def railhop_fuzz_target(name, deps):
    """NAME_fuzz (only with --config=fuzz; tools/fuzz) and NAME_corpus_test (always).

    NAME_fuzz.cc defines LLVMFuzzerTestOneInput; its inputs are testdata/fuzz/NAME.

    Args:
      name: of the target and of its folder of inputs.
      deps: what NAME_fuzz.cc includes.
    """
    cc_library(
        name = name + "_properties",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps + [":input"],
        alwayslink = True,
    )
    cc_test(
        name = name + "_corpus_test",
        size = "small",
        srcs = ["corpus_test.cc"],
        data = ["//testdata/fuzz:" + name],
        local_defines = ["RAILHOP_CORPUS=\\\"testdata/fuzz/%s\\\"" % name],
        deps = [
            ":" + name + "_properties",
            "@com_google_googletest//:gtest_main",
        ],
    )
    cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_properties"],
    )
