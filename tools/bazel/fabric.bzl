"""What a test of whole processes over the software fabric needs: the files, and where it finds them."""

FABRIC_FILES = [
    "//cc/fabric:libibverbs.so.1",
    "//cc/fabric/ctl:railhop-fabric",
    "//cc/plugin:libnccl-net-railhop.so",
    "//testdata/topologies",
]

_ENV = {
    "RAILHOP_TEST_LAUNCHER": "$(location //cc/fabric/ctl:railhop-fabric)",
    "RAILHOP_TEST_LIBRARY": "$(location //cc/fabric:libibverbs.so.1)",
    "RAILHOP_TEST_PLUGIN": "$(location //cc/plugin:libnccl-net-railhop.so)",
}

def fabric_env(**more):
    """The test's `env`.

    Args:
      **more: further variables with the label of a file in `data` each.

    Returns:
      A dict for `env`.
    """
    return dict(_ENV, **{name: "$(location %s)" % label for name, label in more.items()})
