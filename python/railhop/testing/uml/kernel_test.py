"""The kernel cache, with a build that takes no time. Needs no guest."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from railhop.testing.uml import kernel
from railhop.testing.uml.kernel import KernelMissingError

BUILD = """#!/bin/sh
echo "$1" >>"$(dirname "$(dirname "$2")")/built"
sleep 0.2
echo "#!/bin/sh" >"$2"
chmod +x "$2"
"""


@pytest.fixture(name="recipe")
def _recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recipe = tmp_path / "recipe"
    (recipe / "patches").mkdir(parents=True)
    (recipe / "patches" / "0001.patch").write_text("patch")
    (recipe / "kernel.config").write_text("config")
    (recipe / "build_kernel.sh").write_text(BUILD)
    (recipe / "build_kernel.sh").chmod(0o755)
    monkeypatch.setattr(kernel, "RECIPE_DIR", recipe)
    monkeypatch.setattr(kernel, "source_version", lambda: "6.1.1-1")
    monkeypatch.setenv("RAILHOP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RAILHOP_UML_KERNEL", raising=False)
    return recipe


def builds() -> list[str]:
    built = kernel.cache_dir() / "built"
    return built.read_text().split() if built.exists() else []


def accept(_path: Path) -> None:
    """The kernel boots."""


@pytest.mark.usefixtures("recipe")
def test_the_first_build_builds_and_the_second_finds_it() -> None:
    with pytest.raises(KernelMissingError, match="tools/uml build"):
        kernel.find_kernel()
    path = kernel.build(accept)
    assert kernel.build(accept) == path
    assert kernel.find_kernel() == path
    assert builds() == ["6.1.1-1"]


@pytest.mark.parametrize("file", ["kernel.config", "build_kernel.sh", "patches/0001.patch"])
def test_a_changed_input_makes_another_kernel(recipe: Path, file: str) -> None:
    first = kernel.build(accept)
    with open(recipe / file, "a", encoding="ascii") as changed:
        changed.write("# changed\n")
    with pytest.raises(KernelMissingError):
        kernel.find_kernel()
    assert kernel.build(accept) != first
    assert len(builds()) == 2


@pytest.mark.usefixtures("recipe")
def test_a_new_source_version_makes_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    first = kernel.build(accept)
    monkeypatch.setattr(kernel, "source_version", lambda: "6.1.2-1")
    second = kernel.build(accept)
    assert second != first
    assert kernel.find_kernel() == second


@pytest.mark.usefixtures("recipe")
def test_a_damaged_kernel_is_built_again() -> None:
    path = kernel.build(accept)
    path.write_bytes(b"")
    assert kernel.build(accept) == path
    assert path.stat().st_size > 0
    assert len(builds()) == 2


@pytest.mark.usefixtures("recipe")
def test_a_kernel_that_does_not_boot_is_not_kept() -> None:
    def reject(path: Path) -> None:
        raise KernelMissingError(f"{path} does not boot")

    with pytest.raises(KernelMissingError, match="does not boot"):
        kernel.build(reject)
    with pytest.raises(KernelMissingError, match="tools/uml build"):
        kernel.find_kernel()
    assert {file.name for file in kernel.cache_dir().iterdir()} == {"built", "lock"}


def test_a_failed_build_leaves_nothing(recipe: Path) -> None:
    (recipe / "build_kernel.sh").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(KernelMissingError, match="could not be built"):
        kernel.build(accept)
    assert [file.name for file in kernel.cache_dir().iterdir()] == ["lock"]


@pytest.mark.usefixtures("recipe")
def test_two_builders_at_once_build_once() -> None:
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(kernel.build(accept))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(set(paths)) == 1
    assert len(builds()) == 1
