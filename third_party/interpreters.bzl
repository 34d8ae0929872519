"""Repository rule that finds the CPythons for which wheels are made."""

_HEADERS = """
cc_library(
    name = "{tag}_headers",
    hdrs = glob(["{tag}/**/*.h"]),
    includes = ["{tag}"],
)
"""

def _interpreters_repository_impl(rctx):
    # The search is in Python: it runs each candidate, and has a test.
    done = rctx.execute(["/usr/bin/python3", "-I", rctx.path(rctx.attr.find)])
    if done.return_code != 0:
        fail("cannot look for Pythons: " + done.stderr)
    found = json.decode(done.stdout)
    if not found:
        fail("no CPython 3.9 to 3.13 with headers found: apt-get install python3-dev")
    build = "load(\"@rules_cc//cc:defs.bzl\", \"cc_library\")\n\n"
    build += "package(default_visibility = [\"//visibility:public\"])\n"
    for one in found:
        rctx.symlink(one["include"], one["tag"])
        build += _HEADERS.format(tag = one["tag"])
    table = "\"\"\"Found on this machine; a list of python3.N on PATH changes it.\"\"\"\n\n"
    table += "INTERPRETERS = " + json.encode(found) + "\n"
    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD.bazel", build)
    rctx.file("interpreters.bzl", table)

interpreters_repository = repository_rule(
    implementation = _interpreters_repository_impl,
    attrs = {
        "find": attr.label(mandatory = True, allow_single_file = True, doc = "the search"),
    },
    environ = [
        "HOME",
        "PATH",
        "PYENV_ROOT",
        "RAILHOP_PYTHONS",
    ],
    local = True,
    doc = """INTERPRETERS in interpreters.bzl: a list of {tag, version, python, include, suffix}, and
TAG_headers for each, such as cp311_headers.""",
)
