"""Python macros: pybind11 extension modules and pytest tests."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_python//python:defs.bzl", "py_library", "py_test")

def pybind_extension(name, srcs, deps = [], visibility = None, **kwargs):
    """NAME.so, importable as a module of this package, and py_library NAME around it.

    The version script hides all but the module's entry: else symbols of a library linked in would
    meet those of another copy in the same process.

    Args:
      name: of the module.
      srcs: sources; PYBIND11_MODULE's first argument is `name`.
      deps: cc_library targets.
      visibility: of both.
      **kwargs: passed to cc_binary.
    """
    cc_binary(
        name = name + ".so",
        srcs = srcs,
        additional_linker_inputs = ["//tools/bazel:pyext.lds"],
        copts = ["-fexceptions"],
        linkopts = [
            "-fuse-ld=lld",
            "-Wl,--version-script=$(location //tools/bazel:pyext.lds)",
            "-Wl,--as-needed",
            "-l:libstdc++.a",
        ],
        linkshared = True,
        linkstatic = True,
        visibility = visibility,
        deps = deps + ["@pybind11//:pybind11"],
        **kwargs
    )
    py_library(
        name = name,
        data = [name + ".so"],
        visibility = visibility,
    )

def pytest_test(name, srcs, deps = [], args = [], native_ext = False, tags = [], **kwargs):
    """py_test that runs pytest on `srcs` and writes its JUnit file for Bazel.

    Args:
      name: of the test.
      srcs: test files.
      deps: py_library targets.
      args: further arguments for pytest.
      native_ext: set if a compiled module is loaded: a sanitizer's runtime cannot be loaded into a
        python3 that was built without it.
      tags: passed on. `sim`, `fabric` or `kernel` name the tier; without one it is `unit`.
      **kwargs: passed to py_test.
    """
    if native_ext:
        tags = tags + [
            "no_asan",
            "no_tsan",
        ]
    py_test(
        name = name,
        srcs = srcs + ["//tools/bazel:pytest_main.py"],
        args = ["$(location %s)" % s for s in srcs] + args,
        main = "//tools/bazel:pytest_main.py",
        python_version = "PY3",
        tags = tags,
        deps = deps,
        **kwargs
    )
