"""clang-tidy over our own sources, with results kept outside the checkout.

A file is looked at again only if it, one of our headers that it includes (however indirectly), its
flags, .clang-tidy or the versions of the tools have changed.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import pathlib
import re
import subprocess
from collections.abc import Iterable

from tools.dev import compile_commands
from tools.lib import workspace

CLANG_TIDY = "clang-tidy-14"
_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Paths of this checkout and of Bazel's output base differ between machines; results do not.
_PLACE = re.compile(r"^/\S*")


def own_headers(root: pathlib.Path, source: str) -> list[str]:
    """The file and all of our headers that it includes, directly or not, sorted."""
    seen: set[str] = set()
    todo = [source]
    while todo:
        name = todo.pop()
        if name in seen or not (root / name).is_file():
            continue
        seen.add(name)
        todo += [m.decode() for m in _INCLUDE.findall((root / name).read_bytes())]
    return sorted(seen)


def key_of(root: pathlib.Path, source: str, arguments: Iterable[str], versions: str) -> str:
    """Name under which the result for this file in this state is kept."""
    digest = hashlib.sha256(versions.encode())
    for argument in arguments:
        digest.update(_PLACE.sub("", argument).encode() + b"\0")
    digest.update((root / ".clang-tidy").read_bytes())
    for name in own_headers(root, source):
        digest.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    return digest.hexdigest()


def _versions() -> str:
    """What else the result hangs on: clang-tidy, and Debian's sources of the libraries."""
    texts = [subprocess.run([CLANG_TIDY, "--version"], check=True, stdout=subprocess.PIPE).stdout]
    texts += [stamp.read_bytes() for stamp in sorted(workspace.debsrc_dir().glob("*/.stamp"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _run(command: compile_commands.Command) -> str:
    """What clang-tidy says of one file; empty if nothing."""
    # In place of a compilation database, which would be read anew for each file.
    flags = [a for a in command.arguments[1:] if a not in ("-c", "-o")]
    source = str(workspace.ROOT / command.file)
    flags = [a for a in flags if a != source and not a.endswith(".o")]
    config = f"--config-file={workspace.ROOT}/.clang-tidy"
    done = subprocess.run(
        [CLANG_TIDY, "--quiet", config, source, "--", *flags],
        cwd=command.directory,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and not done.stdout.strip():
        return ""
    shown = done.stdout.replace(f"{command.directory}/./", "").replace(f"{workspace.ROOT}/", "")
    return shown + "\n".join(
        line for line in done.stderr.splitlines() if "warnings generated" not in line
    )


def check(jobs: int) -> list[str]:
    """Complaints, one text for each file that has any."""
    # Generated headers and the links that any header is found through come with a build.
    if workspace.bazel_run("build", "--config=ci", "//...") != 0:
        return ["clang-tidy: the tree does not build"]
    cache = workspace.cache_dir() / "tidy"
    cache.mkdir(parents=True, exist_ok=True)
    versions = _versions()
    due = []
    for command in compile_commands.collect([]):
        key = key_of(workspace.ROOT, command.file, command.arguments, versions)
        if not (cache / key).exists():
            due.append((command, cache / key))
    if due:
        workspace.say(f"clang-tidy: {len(due)} files to look at")
    complaints = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        texts = pool.map(lambda item: _run(item[0]), due)
        for (_, mark), text in zip(due, texts):
            if text:
                complaints.append(text)
            else:
                mark.touch()
    return complaints
