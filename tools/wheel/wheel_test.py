"""The built wheels: what is in them, what they need, and that pip and the loader will take them."""

from __future__ import annotations

import base64
import email
import hashlib
import os
import pathlib
import zipfile

import pytest

from tools.bazel import elf
from tools.wheel import make_wheel

# What any of it needs at most: Ubuntu 22.04, RHEL 9. A newer one would shut users out.
GLIBC_MAX = (2, 34)
# Wheels that take more than this carry something that is not for users.
SIZE_MAX = 12_000_000
# Besides these a manylinux system has nothing for sure.
_SYSTEM = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libm.so.6", "libstdc++.so.6"
}  # fmt: skip

_FOLDERS = [pathlib.Path(one) for one in os.environ["RAILHOP_TEST_WHEELS"].split()]
_WHEELS = [next(folder.glob("*.whl")) for folder in _FOLDERS]


@pytest.fixture(params=_WHEELS, ids=lambda path: path.name.split("-")[2])
def wheel(request: pytest.FixtureRequest) -> zipfile.ZipFile:
    return zipfile.ZipFile(request.param)


def _info(wheel: zipfile.ZipFile, name: str) -> str:
    (place,) = [one for one in wheel.namelist() if one.endswith(f".dist-info/{name}")]
    return wheel.read(place).decode()


def test_debians_python_has_one() -> None:
    assert any("-cp311-cp311-" in path.name for path in _WHEELS)


def test_each_folder_has_one_wheel() -> None:
    for folder in _FOLDERS:
        assert len(list(folder.iterdir())) == 1


def test_the_record_is_right(wheel: zipfile.ZipFile) -> None:
    lines = _info(wheel, "RECORD").splitlines()
    assert sorted(line.split(",")[0] for line in lines) == sorted(wheel.namelist())
    for line in lines:
        name, digest, size = line.split(",")
        if name.endswith("/RECORD"):
            continue
        data = wheel.read(name)
        right = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert digest == f"sha256={right}", name
        assert int(size) == len(data), name


def test_it_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    said = email.message_from_string(_info(wheel, "METADATA"))
    assert said["Name"] == "railhop"
    assert said["License"] == "Apache-2.0"
    assert said.get_all("Provides-Extra") == ["torch", "telemetry"]
    always = [one for one in said.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert sorted(one.split(">")[0] for one in always) == ["click", "rich"]
    assert _info(wheel, "licenses/LICENSE") == pathlib.Path("LICENSE").read_text(encoding="utf-8")


def test_the_name_says_what_is_inside(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename is not None
    name = pathlib.Path(wheel.filename).name
    tag = name.removesuffix(".whl").split("-", 2)[2]
    assert f"Tag: {tag}\n" in _info(wheel, "WHEEL")
    python = tag.split("-")[0]
    modules = [one for one in wheel.namelist() if ".cpython-" in one]
    assert modules
    for module in modules:
        assert f".cpython-{python.removeprefix('cp')}-" in module


def test_what_users_need_is_there(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for needed in (
        "railhop/__init__.py",
        "railhop/py.typed",
        "railhop/lib/plugin/libnccl-net-railhop.so",
        "railhop/lib/fabric/libibverbs.so.1",
        "railhop/lib/fabric/railhop-fabric",
        "railhop/lib/netperf/railhop-netperf",
        "railhop/lib/topologies/two-hosts-4nic.topology",
        "railhop/_native.pyi",
        "railhop/_transport/native.pyi",
        "railhop/torch/process_group.py",
        "railhop/testing/fabric/native.pyi",
    ):
        assert needed in names
    for name in names:
        assert name.startswith(("railhop/", "railhop-")), name
        assert not name.endswith(("_test.py", ".cc", ".bazel", "README.md")), name
        assert "/uml" not in name, name


def test_every_compiled_module_has_a_stub(wheel: zipfile.ZipFile) -> None:
    for name in wheel.namelist():
        if ".cpython-" in name:
            assert name.split(".cpython-")[0] + ".pyi" in wheel.namelist()


def test_compiled_files_load_on_old_systems(wheel: zipfile.ZipFile, tmp_path: pathlib.Path) -> None:
    """The glibc needed, stated: it may not grow unnoticed."""
    newest: tuple[int, ...] = (0,)
    for name in wheel.namelist():
        data = wheel.read(name)
        if not make_wheel.is_elf(data):
            continue
        path = tmp_path / "file"
        path.write_bytes(data)
        library = elf.read(str(path))
        assert set(library.needed) <= _SYSTEM, name
        assert library.glibc <= GLIBC_MAX, name
        assert make_wheel.stripped(data, names="plugin/" in name) == data, f"{name}: not stripped"
        newest = max(newest, library.glibc)
    assert newest == GLIBC_MAX
    assert wheel.filename is not None
    assert f"-manylinux_{newest[0]}_{newest[1]}_" in wheel.filename


def test_programs_can_be_run(wheel: zipfile.ZipFile) -> None:
    for entry in wheel.infolist():
        mode = entry.external_attr >> 16
        runs = make_wheel.is_elf(wheel.read(entry.filename))
        assert mode & 0o777 == (0o755 if runs else 0o644), entry.filename


def test_nothing_in_it_says_when_it_was_made(wheel: zipfile.ZipFile) -> None:
    assert {entry.date_time for entry in wheel.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_it_is_small(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename is not None
    assert pathlib.Path(wheel.filename).stat().st_size <= SIZE_MAX
