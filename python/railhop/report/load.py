"""Files to runs: results of `railhop drill --save`, and journals of `railhop events --json`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from railhop.drills.result import FORMAT, KEY, Result
from railhop.report.from_drill import run_of_drill
from railhop.report.from_journal import run_of_journal
from railhop.report.run import ReportError, Run
from railhop.report.shape import mistake

# What every entry of a journal has.
_ENTRY = {"serial": int, "time_unix_ns": int, "kind": str}


def load(file: pathlib.Path) -> Run:
    """The run that a file tells of.

    Errors: ReportError, which names the file, the line where there is one, and what is wrong.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ReportError(
            f"{file}: this is no text; give a drill's result or a journal of JSON lines"
        ) from None
    if not text.strip():
        raise ReportError(f"{file}: it is empty; give a drill's result or a journal of JSON lines")
    if f'"{KEY}"' in text[:200]:
        return _drill(file, text)
    return run_of_journal(_entries(file, text), file.name)


def _drill(file: pathlib.Path, text: str) -> Run:
    try:
        whole = json.loads(text)
        version = whole.get(KEY) if isinstance(whole, dict) else None
    except ValueError as error:
        raise ReportError(
            f"{file}: a damaged drill result ({_where(error)}); hold the drill again with --save"
        ) from None
    if version != FORMAT:
        raise ReportError(
            f"{file}: a drill result of format {version}, this version reads {FORMAT}; use the "
            "railhop that wrote it"
        )
    told = mistake(whole, Result)
    if not told:
        try:
            return run_of_drill(whole)
        except KeyError as error:
            told = f"{error} is missing"
        except ReportError as error:
            told = str(error)
        except (ValueError, TypeError, AttributeError, IndexError, OverflowError, OSError):
            told = "a value is not as it was written"
    raise ReportError(f"{file}: a damaged drill result ({told}); hold the drill again with --save")


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} column {error.colno}: {error.msg}"
    return "no text that can be read"


def _entries(file: pathlib.Path, text: str) -> list[dict[str, Any]]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ReportError(
                f"{file}:{number}: no JSON ({_where(error)}); a journal is what 'railhop events "
                "--json' prints, one entry a line"
            ) from None
        if not isinstance(entry, dict):
            raise ReportError(f"{file}:{number}: no journal entry: an object is wanted")
        for key, kind in _ENTRY.items():
            if not isinstance(entry.get(key), kind):
                raise ReportError(
                    f"{file}:{number}: no journal entry: '{key}' is missing or no "
                    f"{'number' if kind is int else 'text'}"
                )
        entries.append(entry)
    return entries
