"""Tests of layers.py with files that keep the rules and files that break them."""

from __future__ import annotations

import pathlib

import pytest

from tools.dev import layers


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("cc/rdma_model/queue_pair.cc", "cc/base/prng.h"),
        ("cc/fabric/device.cc", "cc/rdma_model/queue_pair.h"),
        ("cc/fabric/ops/post.cc", "cc/fabric/device.h"),
        ("cc/fabric/device.cc", "infiniband/verbs.h"),
        ("cc/fabric/device_test.cc", "gtest/gtest.h"),
        ("cc/plugin/net_v12.cc", "cc/runtime/driver.h"),
        ("cc/base/status_macros.h", "absl/status/status.h"),
        ("cc/engine/failover.cc", "vector"),
        ("cc/verbs/queue_pair.cc", "sys/socket.h"),
        ("tools/somewhere/else.cc", "cc/plugin/net_v12.h"),
    ],
)
def test_include_downward_is_allowed(path: str, include: str) -> None:
    assert layers.check_source(path, f'#include "{include}"\n') == []
    assert layers.check_source(path, f"#include <{include}>\n") == []


@pytest.mark.parametrize(
    ("path", "include", "word"),
    [
        ("cc/base/units.cc", "cc/config/options.h", "no other layer"),
        ("cc/base/units.cc", "absl/strings/str_cat.h", "only status_macros"),
        ("cc/engine/failover.cc", "cc/verbs/queue_pair.h", "cc/engine may use cc/base"),
        ("cc/engine/failover.cc", "google/protobuf/message.h", "libraries"),
        ("cc/datapath/ledger.cc", "cc/runtime/driver.h", "cc/datapath may use"),
        ("cc/rdma_model/queue_pair.cc", "cc/sim/world.h", "cc/rdma_model may use"),
        ("cc/rdma_model/queue_pair.cc", "absl/status/status.h", "libraries"),
        ("cc/rdma_model/queue_pair.cc", "cc/base/status_macros.h", "brings Abseil"),
        ("cc/fabric/device.cc", "cc/verbs/table.h", "cc/fabric may use"),
        ("cc/fabric/device.cc", "google/protobuf/message.h", "libraries"),
        ("cc/sim/world.cc", "cc/plugin/boundary.h", "cc/sim may use"),
        ("cc/plugin/net_v12.cc", "cc/engine/failover.h", "cc/plugin may use"),
        ("cc/fabric/device.cc", "gtest/gtest.h", "libraries"),
    ],
)
def test_include_upward_is_named(path: str, include: str, word: str) -> None:
    found = layers.check_source(path, f'// first line\n#include "{include}"\n')
    assert len(found) == 1
    assert found[0].startswith(f"{path}:2: includes {include}")
    assert word in found[0]


BUILD_OK = """
load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

package(default_visibility = ["//cc/runtime:__subpackages__"])

# Once used "//cc/plugin:boundary".
cc_library(
    name = "x",
    visibility = ["//cc/plugin:__pkg__"],
    deps = [":y", "//cc/base:prng"],
)

cc_test(
    name = "x_test",
    deps = [":x", "@com_google_googletest//:gtest_main"],
)
"""


def test_build_downward_is_allowed() -> None:
    assert layers.check_build("cc/rdma_model/BUILD.bazel", BUILD_OK) == []


@pytest.mark.parametrize(
    ("label", "word"),
    [
        ("//cc/sim:world", "cc/fabric may use"),
        ("//cc/verbs", "cc/fabric may use"),
        ("//cc/base:status_macros", "brings Abseil"),
        ("@com_google_absl//absl/strings", "libraries"),
        ("@com_google_googletest//:gtest", "libraries"),
    ],
)
def test_build_upward_is_named(label: str, word: str) -> None:
    text = f'cc_library(\n    name = "x",\n    deps = ["{label}"],\n)\n'
    found = layers.check_build("cc/fabric/ops/BUILD.bazel", text)
    assert len(found) == 1
    assert label in found[0]
    assert word in found[0]


def test_googletest_is_for_testonly_packages_and_targets() -> None:
    rule = 'cc_library(\n    name = "x",\n    deps = ["@com_google_googletest//:gtest"],\n)\n'
    package = "package(\n    default_testonly = True,\n)\n"
    path = "cc/runtime/testing/BUILD.bazel"
    assert len(layers.check_build(path, rule)) == 1
    assert layers.check_build(path, package + rule) == []
    assert layers.check_build(path, rule.replace("name", "testonly = True,\n    name")) == []


def test_tree_with_one_violation_gives_one(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cc" / "engine"
    folder.mkdir(parents=True)
    (folder / "good.cc").write_text('#include "cc/base/result.h"\n')
    (folder / "bad.cc").write_text('#include "cc/base/result.h"\n#include "cc/runtime/driver.h"\n')
    (folder / "BUILD.bazel").write_text('cc_library(\n    name = "good",\n)\n')
    files = ["cc/engine/good.cc", "cc/engine/bad.cc", "cc/engine/BUILD.bazel"]
    found = layers.check_tree(tmp_path, files)
    assert found == [
        "cc/engine/bad.cc:2: includes cc/runtime/driver.h: cc/engine may use cc/base",
    ]


def test_table_has_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(layers.LAYERS):
        ready = {name for name, row in layers.LAYERS.items() if row.layers <= done} - done
        assert ready, f"cycle among {sorted(layers.LAYERS.keys() - done)}"
        done |= ready
