"""Runs pytest under `bazel test`: sharding, --test_filter and the JUnit file included."""

from __future__ import annotations

import os
import sys

import pytest


class _Shard:
    """Keeps every total-th test, starting at index."""

    def __init__(self, index: int, total: int) -> None:
        self._index = index
        self._total = total

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        keep = items[self._index :: self._total]
        drop = [item for i, item in enumerate(items) if i % self._total != self._index]
        items[:] = keep
        config.hook.pytest_deselected(items=drop)


def main() -> int:
    env = os.environ
    args = ["-p", "no:cacheprovider", "-ra", "--rootdir", os.getcwd(), "--import-mode=importlib"]
    if "TEST_TMPDIR" in env:
        args += ["--basetemp", os.path.join(env["TEST_TMPDIR"], "pytest")]
    if "XML_OUTPUT_FILE" in env:
        args.append("--junitxml=" + env["XML_OUTPUT_FILE"])
    if env.get("TESTBRIDGE_TEST_ONLY"):
        args += ["-k", env["TESTBRIDGE_TEST_ONLY"]]
    plugins: list[object] = []
    if "TEST_TOTAL_SHARDS" in env:
        with open(env["TEST_SHARD_STATUS_FILE"], "w", encoding="utf-8"):
            pass  # its existence tells Bazel that this runner shards
        plugins.append(_Shard(int(env["TEST_SHARD_INDEX"]), int(env["TEST_TOTAL_SHARDS"])))
    status = int(pytest.main(args + sys.argv[1:], plugins=plugins))
    if plugins and status == int(pytest.ExitCode.NO_TESTS_COLLECTED):
        return 0  # more shards than tests
    return status


if __name__ == "__main__":
    sys.exit(main())
