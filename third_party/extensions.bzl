"""bzlmod's entry point to repositories.bzl (Bazel 7 and newer; untried)."""

load("//third_party:repositories.bzl", "railhop_repositories")

def _railhop_impl(_mctx):
    railhop_repositories()

railhop = module_extension(implementation = _railhop_impl)
