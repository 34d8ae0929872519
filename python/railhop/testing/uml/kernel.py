"""The guest kernel: where it is, and building it once.

Building takes minutes, so the result is kept outside the checkout, in a folder named by the hash of
all that goes into it: Debian's source version and the files of tools/uml_kernel. Tests never build:
they take the kernel that `tools/uml build` has made, and fail if there is none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

KERNEL_ENV = "RAILHOP_UML_KERNEL"
SOURCE_PACKAGE = "linux-source-6.1"
CHECKOUT = Path(__file__).absolute().parents[4]
RECIPE_DIR = CHECKOUT / "tools" / "uml_kernel"
KEY_LENGTH = 16


class KernelMissingError(Exception):
    """No kernel for this checkout, or it cannot be built here. The text says what to do."""


def cache_dir() -> Path:
    """Where kernels are kept; as tools/lib/common.sh has it."""
    named = os.environ.get("RAILHOP_CACHE")
    if named:
        return Path(named) / "uml"
    if os.geteuid() == 0:
        return Path("/var/cache/railhop/uml")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "railhop" / "uml"


def recipe_digest() -> str:
    """The hash of all files that the kernel is made with, apart from the source itself."""
    digest = hashlib.sha256()
    patches = sorted((RECIPE_DIR / "patches").iterdir())
    for file in [RECIPE_DIR / "build_kernel.sh", RECIPE_DIR / "kernel.config", *patches]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def entry_key(version: str, recipe: str) -> str:
    """The name of the cache folder for a source version and a recipe."""
    return hashlib.sha256(f"{version}\0{recipe}".encode()).hexdigest()[:KEY_LENGTH]


def find_kernel() -> Path:
    """The kernel for this checkout: from RAILHOP_UML_KERNEL, or the cache's newest for its recipe.

    Raises KernelMissingError.
    """
    named = os.environ.get(KERNEL_ENV)
    if named:
        kernel = Path(named)
        if not os.access(kernel, os.X_OK):
            raise KernelMissingError(f"{KERNEL_ENV}={named}: there is no program of this name")
        return kernel
    recipe = recipe_digest()
    made = [entry for entry in _entries() if entry[1] == recipe]
    if not made:
        raise KernelMissingError(
            f"no guest kernel for this checkout in {cache_dir()}; run tools/uml build (minutes)"
        )
    return max(made, key=lambda entry: entry[0].stat().st_mtime)[0]


def _entries() -> Iterator[tuple[Path, str]]:
    """Kernels in the cache, with the recipe that made each."""
    for inputs in cache_dir().glob("*/inputs.json"):
        try:
            recipe = json.loads(inputs.read_text(encoding="utf-8"))["recipe"]
        except (OSError, ValueError, KeyError):
            continue  # Being removed, or not ours.
        yield inputs.parent / "linux", recipe


def source_version() -> str:
    """The version of the kernel's source that Debian serves now, by apt's lists.

    Raises KernelMissingError if apt knows none.
    """
    try:
        policy = subprocess.run(
            ["apt-cache", "policy", SOURCE_PACKAGE],
            capture_output=True,
            text=True,
            check=True,
            env=_c_locale(),
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise KernelMissingError(f"apt-cache does not run: {error}") from error
    for line in policy.splitlines():
        name, _, value = line.strip().partition(": ")
        if name == "Candidate" and value != "(none)":
            return value
    raise KernelMissingError(f"apt knows no {SOURCE_PACKAGE}; run apt-get update")


def _c_locale() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def build(check_boot: Callable[[Path], None]) -> Path:
    """Returns the kernel for this checkout, after building it if the cache has none.

    Safe to call from several processes at once: one builds, the others wait and take its result.
    `check_boot` gets the kernel before it is handed out (and kept), and raises if it does not boot.
    Raises KernelMissingError.
    """
    recipe = recipe_digest()
    version = source_version()
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    entry = cache / entry_key(version, recipe)
    with _Lock(cache / "lock"):
        kernel = _intact_kernel(entry)
        if kernel:
            os.utime(kernel)
        else:
            for left in cache.glob(
                ".new-*"
            ):  # From a build that was killed; nobody else builds now.
                shutil.rmtree(left, ignore_errors=True)
            return _build_entry(entry, version, recipe, check_boot)
    check_boot(kernel)
    return kernel


def _intact_kernel(entry: Path) -> Optional[Path]:
    """The entry's kernel, if it is the file that was put there."""
    kernel = entry / "linux"
    try:
        digest = json.loads((entry / "inputs.json").read_text(encoding="utf-8"))["sha256"]
        return kernel if hashlib.sha256(kernel.read_bytes()).hexdigest() == digest else None
    except (OSError, ValueError, KeyError):
        return None


def _build_entry(
    entry: Path, version: str, recipe: str, check_boot: Callable[[Path], None]
) -> Path:
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
    try:
        kernel = new / "linux"
        words: list[str] = [str(RECIPE_DIR / "build_kernel.sh"), version, str(kernel)]
        if subprocess.run(words, check=False, stdout=sys.stderr, env=_c_locale()).returncode:
            raise KernelMissingError("the guest kernel could not be built (the reason is above)")
        check_boot(kernel)
        inputs = {
            "version": version,
            "recipe": recipe,
            "sha256": hashlib.sha256(kernel.read_bytes()).hexdigest(),
        }
        (new / "inputs.json").write_text(json.dumps(inputs, indent=1) + "\n", encoding="utf-8")
        new.chmod(0o755)
        shutil.rmtree(entry, ignore_errors=True)
        new.rename(entry)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return entry / "linux"


class _Lock:
    """Holds an exclusive lock on a file; says so when it has to wait."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed at exit)

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("uml build: another build is at work; waiting for it", file=sys.stderr)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
