"""The page: one file, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Optional

from railhop.report import units
from railhop.report.pictures import episodes_picture, ports_picture, top_rate, total_picture
from railhop.report.run import Episode, Run
from railhop.report.steps import loss_picture, steps_picture
from railhop.report.style import CSS

# Longer tables hide nothing: the rest is counted in a line.
_ROWS_MAX = 60
_NONE = "-"


def page(runs: Sequence[Run], *, title: str = "") -> str:
    """HTML of one or more runs; the first one's title is the page's unless said."""
    title = title or runs[0].title
    several = len(runs) > 1
    parts = [f"<h1>{'' if several else _badge(runs[0])}{escape(title)}</h1>"]
    if several:
        parts.append(_summary(runs))
        losses = loss_picture(runs)
        if losses:
            parts.append(f"<h3>Loss</h3>{losses}")
    for run in runs:
        if several:
            parts.append(f"<h2>{_badge(run)}{escape(run.title)}</h2>")
        parts.append(_section(run, several=several))
    parts.append("<footer>Made by railhop report.</footer>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{CSS}</style>\n'
        f"</head>\n<body>\n<main>\n{chr(10).join(parts)}\n</main>\n</body>\n</html>\n"
    )


def _badge(run: Run) -> str:
    if run.verdict is None:
        return ""
    if not run.verdict["usable"]:
        return '<span class="badge bad">not usable</span>'
    good = run.verdict["survived"]
    return (
        f'<span class="badge {"good" if good else "bad"}">{"survived" if good else "died"}</span>'
    )


def _tile(what: str, value: str, more: str = "", *, bad: bool = False) -> str:
    return (
        f'<div class="tile"><div class="what">{escape(what)}</div>'
        f'<div class="value{" bad" if bad else ""}">{escape(value)}</div>'
        f'<div class="more">{escape(more)}</div></div>'
    )


def _gb(value: Optional[float]) -> str:
    return _NONE if value is None else units.rate(value * 1e9)


def _percent(part: Optional[float], whole: Optional[float]) -> str:
    return f"{100 * part / whole:.0f} % of before" if part is not None and whole else ""


def _tiles(run: Run, verdict: dict[str, Any]) -> str:
    tiles = []
    gap, most = verdict["gap_ms"], verdict["gap_ms_max"]
    if gap is not None:
        before = verdict["gap_before_ms"]
        allowed = f"{units.milliseconds(most)} allowed; " if most else ""
        usual = "" if before is None else f"{units.milliseconds(before)} without a fault"
        what = "Longest delay of a step" if verdict["gap_from"] == "steps" else "Longest gap"
        tiles.append(_tile(what, units.milliseconds(gap), allowed + usual, bad=0 < most < gap))
    wrong = verdict["wrong_bytes"]
    if wrong is not None:
        of = f"in {run.messages:,} messages" if run.messages else "compared by the workload"
        tiles.append(_tile("Wrong bytes", f"{wrong:,}", of, bad=wrong > 0))
    before = verdict["before_gb_per_s"]
    tiles.append(_tile("Bandwidth before", _gb(before)))
    if run.bands:
        during, after = verdict["during_gb_per_s"], verdict["after_gb_per_s"]
        tiles.append(_tile("during the fault", _gb(during), _percent(during, before)))
        tiles.append(_tile("after it", _gb(after), _percent(after, before)))
    back = verdict["failback"]
    if back["seen"]:
        tiles.append(
            _tile("Failback", units.milliseconds(back["after_ms"]), "after the port was good again")
        )
    elif back["seen"] is False:
        tiles.append(_tile("Failback", "none", "the port carries nothing"))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _section(run: Run, *, several: bool) -> str:
    parts = []
    if run.about:
        parts.append(f"<p>{escape(run.about)}</p>")
    facts = " ".join(
        f"<span>{escape(key)} <b>{escape(value)}</b></span>" for key, value in run.facts
    )
    parts.append(f'<p class="facts">{facts}</p>')
    if run.verdict is not None:
        for one in run.verdict["problems"]:
            parts.append(f'<div class="problems">{escape(one)}</div>')
        parts.append(_tiles(run, run.verdict))
    if run.total:
        parts.append(f"<h3>Bandwidth of all NICs</h3>{total_picture(run)}")
    parts += _tracks(run)
    if run.steps:
        parts.append(f"<h3>Training steps</h3>{steps_picture(run)}")
        losses = "" if several else loss_picture([run])
        if losses:
            parts.append(f"<h3>Loss</h3>{losses}")
    parts += _episodes(run)
    return "\n".join(parts)


def _tracks(run: Run) -> list[str]:
    parts = []
    for index, (host, tracks) in enumerate(run.tracks.items()):
        picture = ports_picture(run, host, tracks)
        if run.total and index > 0:
            summary = f"NICs of {escape(host)}"
            parts.append(f"<details><summary>{summary}</summary>{picture}</details>")
        else:
            scale = f", each up to {units.rate(top_rate(tracks))}" if run.total else ""
            what = "NICs" if run.total else "Ports"
            parts.append(f"<h3>{what} of {escape(host)}{scale}</h3>{picture}")
    return parts


def _row(one: Episode) -> str:
    state = ", ".join(one.ports_after) if one.recovered else "not over"
    cells = (
        ("n", f"{one.at_s:.3f} s"),
        ("", one.where),
        ("", one.peer or _NONE),
        ("", one.cause.replace("_", " ")),
        ("", one.blame.replace("_", " ")),
        ("n", str(one.connections)),
        ("n", units.milliseconds(one.detect_ms) if one.detect_ms else "at once"),
        ("n", units.milliseconds(one.agree_ms) if one.agree_ms else _NONE),
        ("n", units.milliseconds(one.resume_ms) if one.resume_ms else _NONE),
        ("n", units.size(one.bytes_resent)),
        ("", state),
    )
    return "".join(f'<td class="{css}">{escape(words)}</td>' for css, words in cells)


_HEADS = (
    ("n", "at"), ("", "port"), ("", "peer"), ("", "first sign"), ("", "to blame"),
    ("n", "connections"), ("n", "detect"), ("n", "agree"), ("n", "resume"), ("n", "sent again"),
    ("", "goes on over"),
)  # fmt: skip


def _episodes(run: Run) -> list[str]:
    if not run.episodes:
        quiet = "Railhop saw no fault." if not run.bands else "No episode was recorded."
        return [f'<h3>Episodes</h3><p class="note">{quiet}</p>']
    heads = "".join(f'<th class="{css}">{words}</th>' for css, words in _HEADS)
    rows = "".join(f"<tr>{_row(one)}</tr>" for one in run.episodes[:_ROWS_MAX])
    more = len(run.episodes) - _ROWS_MAX
    return [
        "<h3>Episodes</h3>",
        '<p class="note">Each end has its own: a fault that both see is two rows. Detect is from '
        "the last sign of life to the decision; agree until both ends have fenced what was under "
        "way; resume until everything moves again.</p>",
        episodes_picture(run.episodes, run.title),
        '<div class="scroll"><table><thead><tr>',
        heads,
        f"</tr></thead><tbody>{rows}</tbody></table></div>",
        f'<p class="note">and {more} more</p>' if more > 0 else "",
    ]


def _summary(runs: Sequence[Run]) -> str:
    rows = []
    for run in runs:
        verdict = run.verdict
        if verdict is None:
            rows.append(f"<td>{escape(run.title)}</td><td></td>" + "<td></td>" * 4)
            continue
        gap = verdict["gap_ms"]
        wrong = verdict["wrong_bytes"]
        rows.append(
            f"<td>{escape(run.title)}</td><td>{_badge(run)}</td>"
            f'<td class="n">{_NONE if gap is None else units.milliseconds(gap)}</td>'
            f'<td class="n">{_NONE if wrong is None else wrong}</td>'
            f'<td class="n">{_gb(verdict["before_gb_per_s"])}</td>'
            f'<td class="n">{_gb(verdict["after_gb_per_s"])}</td>'
        )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<div class="scroll"><table><thead><tr><th>run</th><th></th><th class="n">longest gap</th>'
        '<th class="n">wrong bytes</th><th class="n">before</th><th class="n">after</th></tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )
