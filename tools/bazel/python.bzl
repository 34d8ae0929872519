"""Python macros: pybind11 extension modules and pytest tests."""

load("@interpreters//:interpreters.bzl", "INTERPRETERS")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("@rules_python//python:defs.bzl", "py_library", "py_test")

# The version that .venv has: what is built for it serves its wheel too.
_OWN_TAG = "cp311"

def _extension(name, headers, deps, **kwargs):
    cc_binary(
        name = name,
        additional_linker_inputs = ["//tools/bazel:pyext.lds"],
        # Bindings are wide, not deep: half the time to compile, and as fast.
        copts = ["-fexceptions"] + select({
            "//tools/bazel:opt": [
                "-Os",
                "-g0",
            ],
            "//conditions:default": [],
        }),
        linkopts = [
            "-fuse-ld=lld",
            "-Wl,--version-script=$(location //tools/bazel:pyext.lds)",
            "-Wl,--as-needed",
            "-Wl,--gc-sections",
            "-l:libstdc++.a",
        ],
        linkshared = True,
        linkstatic = True,
        deps = deps + [
            "@pybind11//:headers",
            headers,
        ],
        **kwargs
    )

def pybind_extension(
        name,
        srcs,
        deps = [],
        in_one = False,
        visibility = None,
        tags = [],
        **kwargs):
    """NAME.so, importable as a module of this package, and py_library NAME around it.

    The version script hides all but the module's entry: else symbols of a library linked in would
    meet those of another copy in the same process. For wheels there is NAME.TAG.so for each Python
    found (NAME.cp39.so); extension_file names them.

    Args:
      name: of the module.
      srcs: sources, all that include Python.h: they are compiled for each Python. One of them has
        PYBIND11_MODULE, whose first argument is `name`.
      deps: cc_library targets, without Python.h.
      in_one: compile all sources as one for the other Pythons, a fifth of the time; names in their
        unnamed namespaces must differ.
      visibility: of all.
      tags: of all.
      **kwargs: passed to cc_binary.
    """
    _extension(
        name = name + ".so",
        srcs = srcs,
        deps = deps,
        headers = "@local_python//:headers",
        visibility = visibility,
        tags = tags,
        **kwargs
    )
    py_library(
        name = name,
        data = [name + ".so"],
        visibility = visibility,
    )
    other_srcs = srcs
    if in_one:
        sources = [src for src in srcs if src.endswith(".cc")]
        native.genrule(
            name = name + "_in_one",
            outs = [name + "_in_one.cc"],
            cmd = "printf '%s\\n' > $@" % "\\n".join([
                "#include \"%s/%s\"" % (native.package_name(), src)
                for src in sources
            ]),
        )
        cc_library(
            name = name + "_sources",
            textual_hdrs = srcs,
        )
        other_srcs = [name + "_in_one.cc"]
        deps = deps + [name + "_sources"]
    for one in INTERPRETERS:
        if one["tag"] != _OWN_TAG:
            _extension(
                name = "%s.%s.so" % (name, one["tag"]),
                srcs = other_srcs,
                deps = deps,
                headers = "@interpreters//:%s_headers" % one["tag"],
                visibility = visibility,
                # Only when a wheel asks for it.
                tags = tags + ["manual"],
                **kwargs
            )

def extension_file(label, tag):
    """The file of a pybind_extension for one Python.

    Args:
      label: of the extension, "//folder:name".
      tag: such as "cp39".

    Returns:
      The label of its .so.
    """
    return label + (".so" if tag == _OWN_TAG else ".%s.so" % tag)

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
