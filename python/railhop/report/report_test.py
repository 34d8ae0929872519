"""Pages say what happened; a damaged file is one sentence with its place."""

from __future__ import annotations

import html.parser
import json
import math
import pathlib
import re

import pytest

from railhop.report import ReportError, Run, load, page, run_of_drill, samples, units
from railhop.report.chart import Frame, ticks


def run(result: object = None) -> Run:
    made = samples.drill() if result is None else result
    return run_of_drill(json.loads(made.dump()))  # type: ignore[attr-defined]


class Checker(html.parser.HTMLParser):
    """Every tag is closed in order; collects what the page loads and the words in it."""

    VOID = ("meta", "link", "br", "line", "rect", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check(text: str) -> str:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert all(one.startswith("data:") for one in checker.loads), checker.loads
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert "nan" not in re.findall(r'(?:x|y|d|width|height)\d?="([^"]*)"', text)
    return " ".join(checker.words)


def test_a_time_without_samples_breaks_the_line() -> None:
    whole = json.loads(samples.drill().dump())
    series = whole["series"]
    kept = [i for i, time_s in enumerate(series["times_s"]) if not 4.0 < time_s < 6.0]
    series["times_s"] = [series["times_s"][i] for i in kept]
    for name, moved in series["moved_bytes"].items():
        series["moved_bytes"][name] = [moved[i] for i in kept]
        series["up"][name] = [series["up"][name][i] for i in kept]
    broken = run_of_drill(whole)
    unknown = [time_s for time_s, rate in broken.total if math.isnan(rate)]
    assert len(unknown) == 1
    assert unknown[0] == pytest.approx(6.0, abs=0.1)
    text = page([broken])
    check(text)
    assert "nan" not in text
    assert max(re.findall(r'<path d="([^"]*)" class="curve"', text), key=len).count("M") == 2
    assert not [rate for _, rate in run().total if math.isnan(rate)]


def test_a_drill_that_was_not_held_as_planned_is_not_called_survived() -> None:
    whole = json.loads(samples.drill().dump())
    whole["verdict"].update(usable=False, problems=["step 'a' was 36 s late"])
    text = check(page([run_of_drill(whole)]))
    assert "not usable" in text
    assert "survived" not in text.split("NICs")[0]


def test_a_drill_page_tells_the_figures_and_needs_nothing_else() -> None:
    words = check(page([run()]))
    for expected in (
        "nic-down on two-hosts-4nic", "survived", "37.3 ms", "2 s allowed", "43,146 messages",
        "208 MB/s", "75 % of before", "1.07 s", "alpha/mlx5_0 down for 4s", "repaired", "failback",
        "NICs of alpha", "NICs of beta", "port down", "local port", "524 kB", "900", "mlx5_3",
    ):  # fmt: skip
        assert expected in words or expected == "900", expected
    assert "2.9 ms" in words


def test_a_dead_run_says_so_and_why() -> None:
    words = check(page([run(samples.dead())]))
    assert "died" in words
    assert "completion with status 12" in words
    assert "repaired" not in words


def test_several_runs_are_compared() -> None:
    first = samples.drill(title="run 1", steps=samples.steps(dip=False))
    second = samples.dead()
    second.steps = samples.steps(18)
    text = page([run(first), run(second), run(samples.drill(title="run 3"))], title="Three runs")
    words = check(text)
    assert "Three runs" in words
    assert words.count("longest gap") == 1
    assert "run 1: 60 steps" in words
    assert "with RAILHOP_FAILOVER=0: 18 steps" in words


def test_words_of_others_are_escaped() -> None:
    evil = samples.drill(title='<script>"&', workload="a<b>&c")
    evil.happenings[0].text = 'x"><script>'
    check(page([run(evil)], title="<b>"))


def test_empty_series_make_a_page_too() -> None:
    bare = samples.drill(episodes=[], happenings=[])
    bare.series.times_s.clear()
    for name in bare.series.moved_bytes:
        bare.series.moved_bytes[name].clear()
        bare.series.up[name].clear()
    assert "Railhop saw no fault" in check(page([run(bare)]))


def test_a_journal_becomes_ports_and_episodes(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_text(samples.journal(), encoding="utf-8")
    loaded = load(file)
    assert len(loaded.episodes) == 3
    assert loaded.episodes[0].recovered
    assert loaded.episodes[0].resume_ms == pytest.approx(2.9)
    assert loaded.episodes[0].agree_ms == pytest.approx(0.9, abs=0.01)
    assert loaded.episodes[0].ports_after == ["mlx5_1:1"]
    assert not loaded.episodes[2].recovered
    assert sorted(loaded.tracks) == ["node-17 process 4242", "node-17 process 4243"]
    first = loaded.tracks["node-17 process 4242"]
    assert first[0].down[0] == pytest.approx((6.0, 10.0))
    words = check(page([loaded]))
    assert "hold mlx5_1" in words
    assert "not over" in words


def test_a_saved_drill_is_loaded(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "drill.json"
    file.write_text(samples.drill().dump(), encoding="utf-8")
    assert load(file).title == "nic-down on two-hosts-4nic"


def changed(before: str, after: str) -> str:
    text = samples.drill().dump()
    assert before in text
    return text.replace(before, after)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "it is empty"),
        ("not json\n", ":1: no JSON"),
        (samples.journal() + '{"serial": 99, "time_un', ":20: no JSON"),
        (samples.journal() + "[1]\n", ":20: no journal entry: an object is wanted"),
        ('{"serial": 1, "kind": "session"}\n', ":1: no journal entry: 'time_unix_ns' is missing"),
        ('{"railhop_drill": 1, "title": "x"', "damaged drill result (line 1"),
        ('{"railhop_drill": 1, "title": "x"}', "damaged drill result ('fabric' is missing)"),
        ('{"railhop_drill": 9}', "of format 9, this version reads 1"),
        (samples.drill().dump().replace('"times_s": [', '"times_s": [0.1, '), "do not match"),
        (changed('"seconds": 12.0', '"seconds": "x"'), "('seconds' is not a number)"),
        (changed('"gap_ms": 37.3', '"gap_ms": "abc"'), "('verdict.gap_ms' is not a number or null"),
        (changed('"seen": true', '"seen": 7'), "('verdict.failback.seen' is not true or false"),
        (changed('"up": {', '"up": {"x/y": 3, '), "('series.up.x/y' is not a list)"),
        (changed('"about": ', '"above": '), "('about' is missing)"),
        (changed('"at_s": 3.0', '"at_s": null'), "('happenings[0].at_s' is not a number)"),
        (changed('"detect_ns": 150000', '"detect_ns": "x"'), "(a value is not as it was written)"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: pathlib.Path, text: str, named: str) -> None:
    file = tmp_path / "damaged.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ReportError) as caught:
        load(file)
    assert str(caught.value).startswith(str(file))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ReportError, match="nowhere: No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(ReportError, match="Is a directory"):
        load(tmp_path)
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ReportError, match="this is no text"):
        load(file)


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 12, 6) == [0, 2, 4, 6, 8, 10, 12]
    assert ticks(-0.15, 2.9, 6) == [0, 1, 2]
    assert ticks(0, 0, 5) == [0]


def test_a_frame_keeps_everything_inside() -> None:
    frame = Frame(left=10, top=20, width=100, height=50, x_range=(0, 10), y_range=(0, 1))
    assert (frame.x(0), frame.x(10), frame.x(99)) == (10, 110, 110)
    assert (frame.y(0), frame.y(1), frame.y(7)) == (70, 20, 20)


def test_numbers_have_units() -> None:
    assert units.rate(184.8e6) == "185 MB/s"
    assert units.rate(0) == "0 B/s"
    assert units.milliseconds(1068.1) == "1.07 s"
    assert units.milliseconds(0.9) == "0.9 ms"
    assert units.size(1234567) == "1.23 MB"
