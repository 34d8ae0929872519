"""Writes one wheel: the same bytes for the same input.

The platform tag is worked out: the newest glibc that any ELF file in it asks for. That is why the
file's name is known only afterwards, and Bazel gets a folder.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any

import tomllib

from tools.bazel import elf

# The oldest that a zip file can name.
_TIME = (1980, 1, 1, 0, 0, 0)
# PEP 600 knows none older.
_GLIBC_MIN = (2, 5)


def version_of(text: str) -> str:
    """The value of __version__ in the text of version.py."""
    found = re.search(r'^__version__ = "([0-9][0-9A-Za-z.+]*)"$', text, re.MULTILINE)
    if not found:
        raise ValueError("no __version__ found")
    return found[1]


def is_elf(data: bytes) -> bool:
    return data.startswith(b"\x7fELF")


def stripped(data: bytes, *, names: bool) -> bytes:
    """An ELF file without debugging information; with the names of functions if `names`."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "file"
        path.write_bytes(data)
        subprocess.run(["strip", "--strip-debug" if names else "--strip-all", path], check=True)
        return path.read_bytes()


def glibc_of(data: bytes) -> tuple[int, ...]:
    """The newest glibc that an ELF file needs."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return elf.read(file.name).glibc


def platform_tag(contents: Mapping[str, bytes]) -> str:
    """Such as manylinux_2_34_x86_64, of all ELF files."""
    needed = max((glibc_of(data) for data in contents.values() if is_elf(data)), default=(0,))
    newest = max(needed, _GLIBC_MIN)
    return f"manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def metadata(project: Mapping[str, Any], version: str, licenses: list[str], readme: str) -> str:
    """The text of METADATA."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['summary']}",
        f"License: {project['license']}",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {one}" for one in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        *(f"License-File: {one}" for one in licenses),
        *(f"Requires-Dist: {one}" for one in project["dependencies"]),
    ]
    for extra, wanted in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {one}; extra == "{extra}"' for one in wanted]
    lines += ["Description-Content-Type: text/markdown", "", readme]
    return "\n".join(lines)


def entry_points(project: Mapping[str, Any], contents: Mapping[str, bytes]) -> str:
    """The text of entry_points.txt. Raises ValueError if one names a module that is not there."""
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, entries in groups.items():
        if not entries:
            continue
        lines.append(f"[{group}]")
        for name, target in entries.items():
            module = target.split(":")[0].replace(".", "/")
            if f"{module}.py" not in contents and f"{module}/__init__.py" not in contents:
                raise ValueError(f"{group} {name}: {target} is not in the wheel")
            lines.append(f"{name} = {target}")
        lines.append("")
    return "\n".join(lines)


def write(path: pathlib.Path, contents: Mapping[str, bytes], info: str) -> None:
    """The zip file, RECORD included and last; programs can be run."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name: str, data: bytes) -> None:
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whatever makes it
            entry.external_attr = (stat.S_IFREG | (0o755 if is_elf(data) else 0o644)) << 16
            archive.writestr(entry, data)

        # What describes it comes last, as the format recommends.
        for name in sorted(contents, key=lambda one: (one.startswith(info), one)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest())
            record.append(f"{name},sha256={digest.rstrip(b'=').decode()},{len(contents[name])}")
            add(name, contents[name])
        record.append(f"{info}/RECORD,,")
        add(f"{info}/RECORD", ("\n".join(record) + "\n").encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder")
    parser.add_argument("--python-tag", required=True, help="such as cp311")
    parser.add_argument("--project", type=pathlib.Path, required=True)
    parser.add_argument("--version-file", type=pathlib.Path, required=True)
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--license", action="append", default=[], help="NAME=FILE")
    parser.add_argument("--file", action="append", default=[], help="PLACE=FILE")
    args = parser.parse_args()
    project = tomllib.loads(args.project.read_text(encoding="utf-8"))["project"]
    version = version_of(args.version_file.read_text(encoding="utf-8"))
    contents = {}
    for one in args.file:
        place, source = one.split("=", 1)
        if place in contents:
            raise ValueError(f"{place} comes twice")
        data = pathlib.Path(source).read_bytes()
        # A plugin's functions have names in a job's stack traces.
        contents[place] = stripped(data, names="plugin/" in place) if is_elf(data) else data
    info = f"{project['name']}-{version}.dist-info"
    tags = f"{args.python_tag}-{args.python_tag}-{platform_tag(contents)}"
    licenses = dict(one.split("=", 1) for one in args.license)
    for name, source in licenses.items():
        contents[f"{info}/licenses/{name}"] = pathlib.Path(source).read_bytes()
    wheel = f"Wheel-Version: 1.0\nGenerator: railhop\nRoot-Is-Purelib: false\nTag: {tags}\n"
    texts = {
        "METADATA": metadata(
            project, version, sorted(licenses), args.readme.read_text(encoding="utf-8")
        ),
        "WHEEL": wheel,
        "entry_points.txt": entry_points(project, contents),
    }
    contents |= {f"{info}/{name}": text.encode() for name, text in texts.items() if text}
    write(args.out / f"{project['name']}-{version}-{tags}.whl", contents, info)
    return 0


if __name__ == "__main__":
    sys.exit(main())
