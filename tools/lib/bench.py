"""Runs registered benchmarks and prints their figures, one JSON object a line (tools/bench).

A benchmark is a file tools/bench.d/NAME.toml:

    doc = "what it measures, in one line"
    target = "//cc/fabric/bench:fabric_bench"   # built optimised and run
    args = ["--quick"]                          # optional
    fabric = true                               # optional: run inside a fresh fabric

Its program prints one JSON object for each figure on standard output, and progress on standard
error. The keys are FIGURE_KEYS; `bench` must be NAME.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import tomllib

from tools.lib import build, workspace
from tools.lib.products import PRODUCTS

# value, in unit; baseline: what it is compared with, measured in the same run; ratio: value over
# that; runs: how many runs the value is the median of.
FIGURE_KEYS = ("bench", "metric", "value", "unit", "baseline", "ratio", "runs")
_KEYS = ("args", "doc", "fabric", "target")
FOLDER = workspace.ROOT / "tools" / "bench.d"


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A row of tools/bench.d."""

    name: str
    doc: str
    target: str
    args: tuple[str, ...]
    fabric: bool = False


def load(path: pathlib.Path) -> Benchmark:
    """Reads a registration. Raises ValueError that names the file and the key."""
    with path.open("rb") as file:
        table = tomllib.load(file)
    unknown = table.keys() - set(_KEYS)
    if unknown:
        allowed = ", ".join(_KEYS)
        raise ValueError(f"{path}: unknown key '{min(unknown)}' (allowed: {allowed})")
    for key in ("doc", "target"):
        if not isinstance(table.get(key), str):
            raise ValueError(f"{path}: '{key}' is missing")
    if not isinstance(table.get("fabric", False), bool):
        raise ValueError(f"{path}: 'fabric' is neither true nor false")
    args = tuple(table.get("args", ()))
    return Benchmark(
        path.stem, table["doc"], table["target"], args, fabric=table.get("fabric", False)
    )


def problem_of(figure: Any, name: str) -> str:
    """What is wrong with a figure of benchmark `name`; empty if nothing."""
    if not isinstance(figure, dict):
        return "no JSON object"
    if missing := [key for key in FIGURE_KEYS if key not in figure]:
        return f"keys missing: {', '.join(missing)}"
    if figure["bench"] != name:
        return f"bench is '{figure['bench']}', not '{name}'"
    return ""


def _run(benchmark: Benchmark, program: pathlib.Path, options: list[str]) -> bool:
    """Runs one and passes its figures on. False if it failed or printed anything else."""
    workspace.say(f"bench {benchmark.name}: {benchmark.doc}")
    good, figures = True, 0
    command = [str(program), *benchmark.args, *options]
    if benchmark.fabric:
        command = [str(build.DIST / "fabric/railhop-fabric"), "run", "--", *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=workspace.ROOT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                figure = json.loads(line)
                wrong = problem_of(figure, benchmark.name)
            except json.JSONDecodeError as error:
                wrong = f"no JSON: {error}"
            if wrong:
                workspace.say(f"bench {benchmark.name}: {wrong}: {line.strip()}")
                good = False
                continue
            print(json.dumps(figure), flush=True)
            figures += 1
    if process.returncode != 0:
        workspace.say(f"bench {benchmark.name}: ended with status {process.returncode}")
        good = False
    if not figures:
        workspace.say(f"bench {benchmark.name}: printed no figure")
        good = False
    return good


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Parts `NAME... --OPTION...` in front of the first option behind a NAME."""
    for index in range(1, len(words)):
        if words[index].startswith("-") and not words[0].startswith("-"):
            return words[:index], words[index:]
    return words, []


def main() -> int:
    words, options = split_words(sys.argv[1:])
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        usage="tools/bench [--list] NAME... [--OPTION VALUE...]",
        description="Runs benchmarks; prints one JSON object for each figure. Options behind the "
        "names go to the benchmarks' programs.",
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and end")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args(words)
    known = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    try:
        if args.list:
            for name, path in known.items():
                print(f"{name}: {load(path).doc}")
            return 0
        if not args.names:
            parser.error("a NAME is wanted (see --list)")
        for name in args.names:
            if name not in known:
                parser.error(f"no benchmark '{name}' (allowed: {', '.join(known) or 'none yet'})")
        chosen = [load(known[name]) for name in args.names]
        if any(benchmark.fabric for benchmark in chosen):
            build.build([product for product in PRODUCTS if product.key == "fabric_dir"])
        programs = build.build_targets([benchmark.target for benchmark in chosen])
    except (ValueError, RuntimeError) as error:
        workspace.say(str(error))
        return 1
    outcomes = [_run(benchmark, programs[benchmark.target], options) for benchmark in chosen]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
