"""Text to scenario. Lines, or statements between semicolons; `#` begins a comment.

    about  The cable of one NIC is out for four seconds.
    lasts  10s
    gap    2s
    expect failback
    nic0 down at 3s for 4s
    failover mlx5_1 at 2s

Only `at` and `for` are understood here: `at` is taken out, because a fabric counts it from its own
start and a drill from the first message. The rest of a fault goes to the fabric as it is.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Optional

from railhop.scenario.step import COMMANDS, SETTINGS, Expectation, Scenario, ScenarioError, Step

# What `at` is without the word: traffic has a steady course by then.
AT_S_DEFAULT = 3.0
# How long a drill goes on after its last step, unless `lasts` says.
TAIL_S = 4.0
# The longest gap that is still good, unless `gap` says: as most named scenarios have it.
GAP_MS_DEFAULT = 2000.0

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|min|h)")
_TARGET = re.compile(r"(?:(?P<host>[\w.-]+)/)?(?P<device>[\w.-]+(?::[\w.-]+)?)")
_EXPECTED = ("failback", "no-failback", "death")


@dataclasses.dataclass(frozen=True)
class _Word:
    text: str
    column: int  # from 1


@dataclasses.dataclass
class _Draft:
    about: str = ""
    lasts_s: float = 0.0
    gap_ms: float = GAP_MS_DEFAULT
    survives: bool = True
    fails_back: Optional[bool] = None
    steps: list[Step] = dataclasses.field(default_factory=list)


class _Statement:
    """Its words and where they are, for messages."""

    def __init__(self, source: str, line: int, words: list[_Word]) -> None:
        self.words = words
        self._source, self._line = source, line

    @property
    def place(self) -> str:
        return f"{self._source}:{self._line}"

    def error(self, word: _Word, what: str) -> ScenarioError:
        return ScenarioError(f"{self.place}:{word.column}: {what}")

    def time_s(self, index: int) -> float:
        """Of the word behind words[index]."""
        before = self.words[index]
        if index + 1 >= len(self.words):
            raise self.error(before, f"'{before.text}' needs a time, such as '3s' or '500ms'")
        word = self.words[index + 1]
        found = _TIME.fullmatch(word.text)
        if not found:
            raise self.error(
                word,
                f"'{word.text}' is no time; write a number and its unit, such as '3s' or '500ms' "
                f"(units: {', '.join(_UNITS)})",
            )
        return float(found[1]) * _UNITS[found[2]]

    def take(self, option: str) -> Optional[float]:
        """Takes `option TIME` out; its seconds."""
        places = [i for i, word in enumerate(self.words) if word.text == option]
        if not places:
            return None
        if len(places) > 1:
            raise self.error(self.words[places[1]], f"'{option}' is said twice")
        seconds = self.time_s(places[0])
        del self.words[places[0] : places[0] + 2]
        return seconds

    def peek(self, option: str) -> Optional[float]:
        """The seconds of `option TIME`, which stays."""
        for i, word in enumerate(self.words):
            if word.text == option:
                return self.time_s(i)
        return None


def _statements(text: str, source: str) -> Iterator[_Statement]:
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("#", 1)[0]
        start = 0
        # A sentence may have a semicolon of its own.
        for part in [code] if code.split()[:1] == ["about"] else code.split(";"):
            words = [
                _Word(found[0], start + found.start() + 1) for found in re.finditer(r"\S+", part)
            ]
            if words:
                yield _Statement(source, number, words)
            start += len(part) + 1


def _target(statement: _Statement, word: _Word) -> tuple[str, str]:
    found = _TARGET.fullmatch(word.text)
    if not found:
        raise statement.error(
            word,
            f"'{word.text}' names no device; write one such as 'mlx5_0', 'nic0' or 'beta/nic1'",
        )
    return found["host"] or "", found["device"]


def _command(statement: _Statement, at_s: float) -> list[Step]:
    verb = statement.words[0]
    for_s = statement.take("for")
    rest = statement.words[1:]
    if not rest and verb.text != "failback":
        raise statement.error(verb, f"'{verb.text}' needs a target, such as '{verb.text} mlx5_0'")
    host, target = _target(statement, rest[0]) if rest else ("", "")
    mode = ""
    if verb.text == "failover" and len(rest) > 1:
        if rest[1].text not in ("now", "drain"):
            raise statement.error(rest[1], f"no mode '{rest[1].text}' (allowed: now, drain)")
        mode = rest[1].text
    extra = rest[2 if mode else 1 :]
    if extra:
        raise statement.error(
            extra[0],
            f"'{extra[0].text}' is too much for '{verb.text}' (allowed: a target, "
            f"{'now or drain, ' if verb.text == 'failover' else ''}at TIME, for TIME)",
        )
    steps = [Step(at_s, verb.text, host, target, mode, for_s, statement.place)]
    undo = {"failover": "release", "hold": "release"}.get(verb.text)
    if undo and target.startswith("connection:"):
        undo = "failback"  # a connection is not held
    if for_s is not None:
        if undo is None:
            raise statement.error(verb, f"'{verb.text}' cannot have 'for': nothing undoes it")
        steps.append(Step(at_s + for_s, undo, host, target, "", None, statement.place))
    return steps


def _fault(statement: _Statement, at_s: float) -> list[Step]:
    host, target = _target(statement, statement.words[0])
    if len(statement.words) == 1:
        raise statement.error(
            statement.words[0],
            f"'{statement.words[0].text}' is followed by nothing; write what becomes of it, such "
            f"as '{statement.words[0].text} down at 3s for 5s' (settings: {', '.join(SETTINGS)}; "
            f"commands: {', '.join(COMMANDS)})",
        )
    for_s = statement.peek("for")
    words = " ".join(word.text for word in statement.words[1:])
    return [Step(at_s, "fault", host, target, words, for_s, statement.place)]


def _setting(statement: _Statement, draft: _Draft) -> None:
    name = statement.words[0]
    if name.text == "about":
        draft.about = " ".join(word.text for word in statement.words[1:])
    elif name.text == "lasts":
        draft.lasts_s = statement.time_s(0)
    elif name.text == "gap":
        draft.gap_ms = statement.time_s(0) * 1e3
    else:
        for word in statement.words[1:]:
            if word.text not in _EXPECTED:
                raise statement.error(
                    word, f"'{word.text}' cannot be expected (allowed: {', '.join(_EXPECTED)})"
                )
            if word.text == "death":
                draft.survives = False
            else:
                draft.fails_back = word.text == "failback"


def parse(text: str, source: str = "words", *, name: str = "") -> Scenario:
    """A scenario from text.

    Args:
      text: statements.
      source: what messages call it, such as a file's name.
      name: of the scenario; `source` if empty.

    Errors: ScenarioError, with source, line and column.
    """
    draft = _Draft()
    for statement in _statements(text, source):
        if statement.words[0].text in SETTINGS:
            _setting(statement, draft)
            continue
        first = statement.words[0]
        at_s = statement.take("at")
        if not statement.words:
            raise statement.error(first, "nothing happens at this time; write a fault behind it")
        make = _command if statement.words[0].text in COMMANDS else _fault
        draft.steps += make(statement, AT_S_DEFAULT if at_s is None else at_s)
    steps = tuple(sorted(draft.steps, key=lambda step: step.at_s))
    ends = [step.end_s if step.end_s is not None else step.at_s for step in steps]
    lasts_s = draft.lasts_s or max(ends, default=AT_S_DEFAULT) + TAIL_S
    if steps and steps[-1].at_s >= lasts_s:
        raise ScenarioError(
            f"{steps[-1].source}: this happens at {steps[-1].at_s:g} s, after the scenario's end; "
            f"make 'lasts {lasts_s:g}s' longer"
        )
    return Scenario(
        name=name or source,
        about=draft.about,
        steps=steps,
        lasts_s=lasts_s,
        expect=Expectation(draft.survives, draft.gap_ms, draft.fails_back),
    )
