"""Builds what users get, optimised, into dist/ (tools/build)."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys

from tools.lib import workspace
from tools.lib.products import PRODUCTS, Product

DIST = workspace.ROOT / "dist"
CONFIG = "--config=opt"
# Folders with one wheel each: their names are worked out while they are made.
WHEELS = "//tools/wheel:wheels"


def build_targets(targets: list[str]) -> dict[str, pathlib.Path]:
    """Builds them optimised; where each one's file is. Raises RuntimeError if one fails."""
    if workspace.bazel_run("build", CONFIG, "--", *targets) != 0:
        raise RuntimeError("the build failed")
    bin_dir = pathlib.Path(workspace.bazel_output("info", CONFIG, "bazel-bin").strip())
    return {target: bin_dir / target.removeprefix("//").replace(":", "/") for target in targets}


def _install(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies; never writes into a file that a running program has open or mapped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, staged)
    staged.chmod(0o755)
    staged.replace(target)


def _link(link: pathlib.Path, text: str) -> None:
    if link.is_symlink() and str(link.readlink()) == text:
        return
    staged = link.with_name(f".{link.name}.new")
    staged.unlink(missing_ok=True)
    staged.symlink_to(text)
    staged.replace(link)


def build(products: list[Product]) -> dict[str, str]:
    """Builds and installs these; key -> absolute path."""
    # tools/fabric builds again if a source is newer than this file, also one changed meanwhile.
    DIST.mkdir(exist_ok=True)
    stamp = DIST / ".built.new"
    stamp.touch()
    built = build_targets(sorted({target for product in products for target in product.files}))
    paths = {}
    for product in products:
        for target, place in product.files.items():
            _install(built[target], DIST / place)
        for link, text in product.links.items():
            _link(DIST / link, text)
        paths[product.key] = str(DIST / product.path)
    stamp.replace(DIST / ".built")
    return paths


def build_wheels() -> list[str]:
    """Builds and installs a wheel for each Python found; their paths, oldest Python first."""
    if workspace.bazel_run("build", CONFIG, "--", WHEELS) != 0:
        raise RuntimeError("the build of the wheels failed")
    listed = workspace.bazel_output("query", f"labels(srcs, {WHEELS})").split()
    bin_dir = pathlib.Path(workspace.bazel_output("info", CONFIG, "bazel-bin").strip())
    paths = []
    for label in listed:
        folder = bin_dir / label.removeprefix("//").replace(":", "/")
        (made,) = folder.glob("*.whl")
        _install(made, DIST / made.name)
        (DIST / made.name).chmod(0o644)
        paths.append(DIST / made.name)
    for old in set(DIST.glob("*.whl")) - set(paths):
        old.unlink()
    return [str(path) for path in sorted(paths, key=lambda one: (len(one.name), one.name))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/build", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the paths as one JSON object")
    args = parser.parse_args()
    try:
        paths: dict[str, object] = {**build(list(PRODUCTS)), "wheels": build_wheels()}
    except RuntimeError as error:
        workspace.say(str(error))
        return 1
    if args.json:
        print(json.dumps(paths))
    else:
        for key, path in paths.items():
            for one in path if isinstance(path, list) else [path]:
                print(f"{key}: {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
