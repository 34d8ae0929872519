"""C++ macros: shared libraries that load anywhere, and the test that they do."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_python//python:defs.bzl", "py_test")

def railhop_shared_library(
        name,
        version_script,
        deps,
        soname = None,
        nodelete = False,
        linkopts = [],
        additional_linker_inputs = [],
        **kwargs):
    """A .so that needs only libc, libm and libgcc_s, from glibc 2.34 on.

    libstdc++ is linked in and hidden. lld and the shared libgcc_s keep the newest glibc symbol at
    2.34: a static libgcc brings one of 2.35, and gold keeps an unused one of 2.36 from libstdc++.
    A library with the entry points needs `alwayslink = True`: nothing refers to them.

    Args:
      name: file name, such as "libibverbs.so.1".
      version_script: linker script that names every exported symbol; all others must be local.
      deps: cc_library targets.
      soname: DT_SONAME; `name` if not given.
      nodelete: link with -z nodelete, which anything with Abseil in it must have: a thread that
        once waited on an absl::Mutex in the library would crash at its end after a dlclose.
      linkopts: further options.
      additional_linker_inputs: further files that the options name.
      **kwargs: passed to cc_binary (visibility, tags, testonly).
    """
    cc_binary(
        name = name,
        additional_linker_inputs = [version_script] + additional_linker_inputs,
        linkopts = [
            "-fuse-ld=lld",
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-soname,%s" % (soname or name),
            "-Wl,-z,defs",
            "-Wl,--as-needed",
            "-Wl,--gc-sections",
        ] + (["-Wl,-z,nodelete"] if nodelete else []) + linkopts + ["-l:libstdc++.a"],
        linkshared = True,
        linkstatic = True,
        deps = deps,
        **kwargs
    )

def shared_library_test(
        name,
        library,
        exports,
        needed = [],
        glibc_max = "2.34",
        nodelete = False,
        tags = [],
        **kwargs):
    """Checks what a shared library exports, needs and requires of glibc.

    Not run with a sanitizer, which adds needed libraries of its own.

    Args:
      name: of the test.
      library: the .so.
      exports: exported symbols, as "name" or "name@@VERSION"; * stands for any
        characters. Each exported symbol must match an entry, and each entry at least one symbol.
      needed: libraries that it may need besides libc, libm, libgcc_s and ld-linux.
      glibc_max: newest GLIBC_ version that it may require.
      nodelete: whether it must be marked nodelete.
      tags: passed on.
      **kwargs: passed to py_test.
    """
    py_test(
        name = name,
        size = "small",
        srcs = ["//tools/bazel:shared_library_test.py"],
        args = [
                   "--library=$(location %s)" % library,
                   "--glibc-max=" + glibc_max,
               ] + ["--needed=" + n for n in needed] + ["--export='%s'" % e for e in exports] +
               (["--nodelete"] if nodelete else []),
        data = [library],
        main = "//tools/bazel:shared_library_test.py",
        python_version = "PY3",
        tags = tags + [
            "no_asan",
            "no_tsan",
        ],
        deps = ["//tools/bazel:elf"],
        **kwargs
    )
