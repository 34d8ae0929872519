"""Who may include and depend on whom: reads #include lines and BUILD files.

The table is that of docs/architecture.md. A layer may use its own files, the layers in its row, and
the third-party libraries in its row; everything else is an error, also where it would compile.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterable

# The standard libraries and the operating system are free for all.
_ABSL = "com_google_absl"
_PROTOBUF = "com_google_protobuf"
_RDMA_CORE = "rdma_core"
_PYBIND11 = "pybind11"
_GTEST = "com_google_googletest"
_VALGRIND = "valgrind"


@dataclasses.dataclass(frozen=True)
class Layer:
    """layers: folders it may use. libraries: external repositories it may use."""

    layers: frozenset[str]
    libraries: frozenset[str]


def _layer(layers: Iterable[str], libraries: Iterable[str]) -> Layer:
    return Layer(frozenset(layers), frozenset(libraries))


LAYERS: dict[str, Layer] = {
    "cc/base": _layer([], [_ABSL]),
    "cc/config": _layer(["cc/base"], [_ABSL]),
    "cc/engine": _layer(["cc/base"], [_ABSL]),
    "cc/verbs": _layer(["cc/base"], [_ABSL, _RDMA_CORE]),
    "cc/proto": _layer(["cc/base"], [_ABSL, _PROTOBUF]),
    "cc/datapath": _layer(["cc/verbs", "cc/config", "cc/base"], [_ABSL, _RDMA_CORE]),
    "cc/control": _layer(["cc/engine", "cc/proto", "cc/base"], [_ABSL, _PROTOBUF]),
    "cc/admin": _layer(["cc/proto", "cc/config", "cc/base"], [_PROTOBUF]),
    "cc/runtime": _layer(
        [
            "cc/admin",
            "cc/control",
            "cc/datapath",
            "cc/engine",
            "cc/verbs",
            "cc/proto",
            "cc/config",
            "cc/base",
        ],
        [_ABSL, _PROTOBUF],
    ),
    # The ABI's layouts; before the folder that it lies in.
    "cc/plugin/nccl": _layer([], []),
    "cc/plugin": _layer(
        ["cc/plugin/nccl", "cc/admin", "cc/runtime", "cc/datapath", "cc/config", "cc/base"], [_ABSL]
    ),
    "cc/netperf": _layer(["cc/plugin/nccl", "cc/base"], [_ABSL, _VALGRIND]),
    "cc/rdma_model": _layer(["cc/base"], []),
    "cc/fabric": _layer(["cc/rdma_model", "cc/base"], [_RDMA_CORE]),
    # The properties of all that reads text or a stranger's bytes.
    "cc/fuzz": _layer(
        ["cc/admin", "cc/control", "cc/engine", "cc/rdma_model", "cc/config", "cc/base"], [_ABSL]
    ),
    "cc/sim": _layer(
        [
            "cc/rdma_model",
            "cc/admin",
            "cc/runtime",
            "cc/control",
            "cc/datapath",
            "cc/engine",
            "cc/verbs",
            "cc/proto",
            "cc/config",
            "cc/base",
        ],
        [_ABSL, _PROTOBUF, _RDMA_CORE],
    ),
    "python": _layer(
        [
            "cc/plugin/nccl",
            "cc/admin",
            "cc/netperf",
            "cc/runtime",
            "cc/sim",
            "cc/fabric",
            "cc/config",
            "cc/proto",
            "cc/base",
        ],
        [_ABSL, _PROTOBUF, _PYBIND11],
    ),
    "integration": _layer(
        [
            "cc/plugin/nccl",
            "cc/plugin",
            "cc/admin",
            "cc/netperf",
            "cc/verbs",
            "cc/config",
            "cc/sim",
            "cc/rdma_model",
            "cc/base",
            "python",
        ],
        [_ABSL, _PROTOBUF, _RDMA_CORE],
    ),
}

# In cc/base only this pair may use Abseil: cc/rdma_model and cc/fabric use all the rest.
_BASE_WITH_ABSL = "status_macros"
_NO_ABSL = ("cc/rdma_model", "cc/fabric")

# First folder of an include -> external repository.
_HEADER_ROOTS = {
    "absl": _ABSL,
    "google/protobuf": _PROTOBUF,
    "infiniband": _RDMA_CORE,
    "rdma": _RDMA_CORE,
    "pybind11": _PYBIND11,
    "gtest": _GTEST,
    "gmock": _GTEST,
    "valgrind": _VALGRIND,
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_LABEL = re.compile(r'"(@[A-Za-z0-9_]+//[^"]*|//[^"]*)"')
# A call of a rule at the left margin, up to its closing bracket at the left margin.
_RULE = re.compile(r"^([a-z_0-9]+)\((.*?)^\)", re.MULTILINE | re.DOTALL)
_TEST_RULES = ("cc_test", "py_test", "pytest_test", "shared_library_test", "sh_test")


def layer_of(path: str) -> str | None:
    """The layer that a file, or the folder of a label, is in."""
    for layer in LAYERS:
        if path == layer or path.startswith(layer + "/"):
            return layer
    return None


def _is_test_file(path: str) -> bool:
    name = pathlib.PurePosixPath(path).name
    return "_test." in name or name.startswith("test_") or "/testing/" in path


def _wrong_layer(user: str, used: str | None, what: str) -> str | None:
    if used is None or used == user or used in LAYERS[user].layers:
        return None
    allowed = ", ".join(sorted(LAYERS[user].layers)) or "no other layer"
    return f"{what}: {user} may use {allowed}"


def _wrong_library(user: str, library: str, what: str, is_test: bool) -> str | None:
    if is_test and library == _GTEST:
        return None
    if library in LAYERS[user].libraries:
        return None
    allowed = ", ".join(sorted(LAYERS[user].libraries)) or "none"
    return f"{what}: libraries that {user} may use: {allowed}"


def _library_of_header(header: str) -> str | None:
    for root, library in _HEADER_ROOTS.items():
        if header.startswith(root + "/"):
            return library
    return None


def check_source(path: str, text: str) -> list[str]:
    """What is wrong with the #include lines of a C++ file."""
    layer = layer_of(path)
    if layer is None:
        return []
    found = []
    for match in _INCLUDE.finditer(text):
        header = match.group(1)
        line = text.count("\n", 0, match.start(1)) + 1
        what = f"{path}:{line}: includes {header}"
        library = _library_of_header(header)
        if library:
            wrong = _wrong_library(layer, library, what, _is_test_file(path))
            if library == _ABSL and layer == "cc/base" and _BASE_WITH_ABSL not in path:
                wrong = f"{what}: in cc/base only {_BASE_WITH_ABSL} may use Abseil"
        else:
            wrong = _wrong_layer(layer, layer_of(header), what)
            if layer in _NO_ABSL and header == f"cc/base/{_BASE_WITH_ABSL}.h":
                wrong = f"{what}: it brings Abseil, which {layer} may not have"
        if wrong:
            found.append(wrong)
    return found


def check_build(path: str, text: str) -> list[str]:
    """What is wrong with the labels in a BUILD file. `load` and comments are not looked at."""
    package = str(pathlib.PurePosixPath(path).parent)
    layer = layer_of(package)
    if layer is None:
        return []
    found = []
    uncommented = re.sub(r"(?m)^\s*#.*$", "", text)
    all_testonly = "default_testonly = True" in uncommented
    for rule in _RULE.finditer(uncommented):
        kind, body = rule.group(1), rule.group(2)
        if kind == "folder":
            continue  # Files that are carried along, as `data`.
        # visibility names who may use the target, `data` what it runs.
        body = re.sub(r"\b(visibility|default_visibility|data)\s*=\s*\[[^\]]*\]", "", body)
        if kind in ("load", "package", "package_group", "exports_files"):
            continue
        is_test = all_testonly or kind in _TEST_RULES or "testonly = True" in body
        for label in _LABEL.findall(body):
            what = f"{path}: {kind} uses {label}"
            if label.startswith("@"):
                library = label[1:].split("//")[0]
                wrong = _wrong_library(layer, library, what, is_test)
            else:
                used = label[2:].split(":")[0]
                wrong = _wrong_layer(layer, layer_of(used), what)
                if layer in _NO_ABSL and label == f"//cc/base:{_BASE_WITH_ABSL}":
                    wrong = f"{what}: it brings Abseil, which {layer} may not have"
            if wrong:
                found.append(wrong)
    return found


def check_tree(root: pathlib.Path, files: Iterable[str]) -> list[str]:
    """What is wrong in these files of the tree, one sentence each."""
    found = []
    for path in files:
        name = pathlib.PurePosixPath(path).name
        if path.endswith((".h", ".cc", ".c")):
            found += check_source(path, (root / path).read_text(encoding="utf-8"))
        elif name in ("BUILD", "BUILD.bazel"):
            found += check_build(path, (root / path).read_text(encoding="utf-8"))
    return found
