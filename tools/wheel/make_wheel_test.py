"""What a wheel says of itself, and that the same input gives the same bytes."""

from __future__ import annotations

import pathlib
import zipfile

import pytest

from tools.wheel import make_wheel

_PROJECT = {
    "name": "railhop",
    "summary": "s",
    "license": "Apache-2.0",
    "requires-python": ">=3.9",
    "keywords": ["a", "b"],
    "classifiers": ["C"],
    "dependencies": ["click>=8.0"],
    "optional-dependencies": {"torch": ["torch>=2.1", "numpy"]},
    "scripts": {"railhop": "railhop.cli.main:main"},
    "entry-points": {"pytest11": {"railhop": "railhop.plugin"}},
}


def test_version_is_read_and_a_missing_one_is_an_error() -> None:
    assert make_wheel.version_of('"""doc"""\n__version__ = "1.2.3rc1"\n') == "1.2.3rc1"
    with pytest.raises(ValueError, match="__version__"):
        make_wheel.version_of("version = 1\n")


def test_extras_become_markers() -> None:
    text = make_wheel.metadata(_PROJECT, "1.0", ["LICENSE"], "# Words")
    assert "Requires-Dist: click>=8.0\n" in text
    assert 'Provides-Extra: torch\nRequires-Dist: torch>=2.1; extra == "torch"\n' in text
    assert text.endswith("Description-Content-Type: text/markdown\n\n# Words")


def test_an_entry_point_without_its_module_is_an_error() -> None:
    whole = {"railhop/cli/main.py": b"", "railhop/plugin/__init__.py": b""}
    text = make_wheel.entry_points(_PROJECT, whole)
    assert text == (
        "[console_scripts]\nrailhop = railhop.cli.main:main\n\n"
        "[pytest11]\nrailhop = railhop.plugin\n"
    )
    with pytest.raises(ValueError, match=r"railhop\.plugin is not in the wheel"):
        make_wheel.entry_points(_PROJECT, {"railhop/cli/main.py": b""})


def test_a_wheel_without_compiled_files_has_the_oldest_tag() -> None:
    assert make_wheel.platform_tag({"a.py": b"pass"}).startswith("manylinux_2_5_")


def test_the_same_input_gives_the_same_bytes(tmp_path: pathlib.Path) -> None:
    contents = {"b.py": b"2", "a.py": b"1", "r.dist-info/WHEEL": b"w"}
    make_wheel.write(tmp_path / "1.whl", contents, "r.dist-info")
    make_wheel.write(tmp_path / "2.whl", dict(reversed(contents.items())), "r.dist-info")
    assert (tmp_path / "1.whl").read_bytes() == (tmp_path / "2.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.whl") as archive:
        assert archive.namelist() == ["a.py", "b.py", "r.dist-info/WHEEL", "r.dist-info/RECORD"]
        record = archive.read("r.dist-info/RECORD").decode().splitlines()
    assert record[0] == "a.py,sha256=a4ayc_80_OGda4BO_1o_V0etpOqiLx1JwB5S3beHW0s,1"
    assert record[-1] == "r.dist-info/RECORD,,"
