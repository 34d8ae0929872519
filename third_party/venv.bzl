"""Repository rules that point into .venv and .wheelhouse, which tools/setup makes from pinned
requirements.

.venv is a symlink to an environment whose folder is named by the hash of its requirements, so the
paths that get into Bazel's cache are the same in every checkout and change when a requirement does.
A running server does not see a symlink change: what they point at is also in the environment
(.bazelrc.local), and a change of that makes it look again.
"""

def _venv(rctx):
    link = rctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv")
    if not link.exists:
        fail(".venv not found: run tools/setup")
    return link.realpath

def _venv_python_repository_impl(rctx):
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD.bazel", """load("@rules_python//python:defs.bzl", "py_runtime")

py_runtime(
    name = "python3",
    interpreter_path = "{venv}/bin/python3",
    python_version = "PY3",
    stub_shebang = "#!{venv}/bin/python3",
    visibility = ["//visibility:public"],
)
""".format(venv = _venv(rctx)))

venv_python_repository = repository_rule(
    implementation = _venv_python_repository_impl,
    environ = ["RAILHOP_VENV"],
    local = True,
    doc = "The interpreter of .venv as a py_runtime.",
)

def _venv_package_repository_impl(rctx):
    site = _venv(rctx).get_child("lib").get_child("python3.11").get_child("site-packages")
    for dst, src in rctx.attr.links.items():
        path = rctx.path(str(site) + "/" + src)
        if not path.exists:
            fail("%s not found in .venv: run tools/setup" % src)
        rctx.symlink(path, dst)
    rctx.symlink(rctx.attr.build_file, "BUILD.bazel")
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)

venv_package_repository = repository_rule(
    implementation = _venv_package_repository_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "links": attr.string_dict(
            mandatory = True,
            doc = "name in the repository -> path below .venv's site-packages",
        ),
    },
    environ = ["RAILHOP_VENV"],
    local = True,
    doc = "Links files of a Python package that carries C++ headers.",
)

def _wheelhouse_repository_impl(rctx):
    link = rctx.path(Label("//:WORKSPACE")).dirname.get_child(".wheelhouse")
    if not link.exists:
        fail(".wheelhouse not found: run tools/setup")
    for entry in link.realpath.readdir():
        if entry.basename.endswith(".whl"):
            rctx.symlink(entry, entry.basename)
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD.bazel", """filegroup(
    name = "wheelhouse",
    srcs = glob(["*.whl"]),
    visibility = ["//visibility:public"],
)
""")

wheelhouse_repository = repository_rule(
    implementation = _wheelhouse_repository_impl,
    environ = ["RAILHOP_WHEELHOUSE"],
    local = True,
    doc = "Wheels of everything that ours depends on.",
)
