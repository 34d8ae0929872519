"""Where scenarios come from: a name, a file, or words."""

from __future__ import annotations

import difflib
import pathlib

from railhop import paths
from railhop.scenario.parse import parse
from railhop.scenario.step import Scenario, ScenarioError

_ENDING = ".scenario"


def names() -> dict[str, Scenario]:
    """The named scenarios, by name."""
    folder = paths.scenarios_dir()
    return {file.name[: -len(_ENDING)]: _read(file) for file in sorted(folder.glob(f"*{_ENDING}"))}


def _read(file: pathlib.Path) -> Scenario:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ScenarioError(f"{file}: this is no text; a scenario is lines of words") from None
    except OSError as error:
        raise ScenarioError(f"{file}: {error.strerror}") from None
    name = file.name[: -len(_ENDING)] if file.name.endswith(_ENDING) else file.name
    # Those of the package are known by their name.
    ours = file.parent == paths.scenarios_dir()
    scenario = parse(text, file.name if ours else str(file), name=name)
    if not scenario.steps and "no-fault" not in name:
        raise ScenarioError(f"{file}: nothing happens in it; add a line such as 'nic0 down at 3s'")
    return scenario


def _is_path(text: str) -> bool:
    if text.endswith(_ENDING) and text[0] in "./~":
        return True  # also with blanks
    return len(text.split()) == 1 and ("/" in text or text.endswith(_ENDING))


def find(text: str) -> Scenario:
    """The scenario that `text` means: words if it has blanks, else a named one, else a file.

    Errors: ScenarioError; for an unknown name with the known ones.
    """
    stripped = text.strip()
    if not stripped:
        raise ScenarioError(f"an empty scenario (named ones: {', '.join(sorted(_known()))})")
    known = _known()
    if stripped in known:
        return _read(known[stripped])
    file = pathlib.Path(stripped)
    if file.is_file():
        return _read(file)
    if _is_path(stripped):
        what = "is a folder" if file.is_dir() else "no such file"
        raise ScenarioError(f"{stripped}: {what}; 'railhop drill --list' shows the named scenarios")
    if len(stripped.split()) > 1 or ";" in stripped:
        lines = (" ".join(line.split()) for line in stripped.splitlines())
        return parse(stripped, "words", name="; ".join(line for line in lines if line))
    near = difflib.get_close_matches(stripped, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise ScenarioError(
        f"no scenario '{stripped}'{hint} (named ones: {', '.join(sorted(known))}; or a file, or "
        "words such as 'nic0 down at 3s for 5s')"
    )


def _known() -> dict[str, pathlib.Path]:
    return {file.name[: -len(_ENDING)]: file for file in paths.scenarios_dir().glob(f"*{_ENDING}")}
