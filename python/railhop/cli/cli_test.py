"""Every subcommand in this process, with made-up jobs: output, JSON, bad input."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Optional

import pytest

import railhop
from railhop.cli import select
from railhop.cli.common import CliError, need_nics
from railhop.cli.fakes import FakeProcess, Record
from railhop.cli.main import COMMANDS, main
from railhop.report import samples

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[FakeProcess]:
    """What runs on this node; a test may change the list."""
    here = [FakeProcess(101, "a"), FakeProcess(102, "b")]

    def chosen(one: FakeProcess) -> select.Chosen:
        return select.Chosen(one.pid, one.job, one.host, one)

    def attach(pid: int = 0, path: str = "") -> select.Chosen:
        if path:
            raise railhop.StaleSocketError(f"{path}: nobody listens; the process has ended")
        for one in here:
            if one.pid == pid:
                return chosen(one)
        raise railhop.NotFoundError(f"process {pid} does not run Railhop")

    monkeypatch.setattr(select, "attach", attach)
    monkeypatch.setattr(select, "processes", lambda: select.Seen([chosen(one) for one in here]))
    return here


def good(capsys: Capture, *words: str) -> str:
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def good_json(capsys: Capture, *words: str) -> Any:
    out = good(capsys, *words)
    assert out.count("\n") == 1
    return json.loads(out)


def bad(capsys: Capture, *words: str, status: int = 2) -> str:
    assert main(words) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("railhop: ")
    assert "Traceback" not in said.err
    return said.err


# ---- Help, and what is no command.


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches(name: str, capsys: Capture) -> None:
    out = good(capsys, name, "--help")
    assert "Examples:" in out
    assert f"railhop {name}" in out
    if name not in ("completion", "fabric", "netperf"):
        assert "--json" in out


def test_unknown_words_are_named_with_what_is_allowed(capsys: Capture) -> None:
    assert "no command 'stauts' (allowed: env, run, status" in bad(capsys, "stauts")
    assert "'--wrong'" in bad(capsys, "status", "--wrong")
    assert "'gently'" in bad(capsys, "failover", "mlx5_0", "--mode", "gently")
    assert "'tcsh'" in bad(capsys, "completion", "tcsh")
    assert "missing argument" in bad(capsys, "hold")
    assert "'abc' is not a valid int" in bad(capsys, "status", "--pid", "abc")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: Capture) -> None:
    assert "_RAILHOP_COMPLETE" in good(capsys, "completion", shell)


def test_the_version(capsys: Capture) -> None:
    assert good(capsys, "--version") == f"railhop {railhop.__version__}\n"


def test_a_mistake_of_our_own_is_one_line(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs[0], "stats", lambda: 1 / 0)
    said = bad(capsys, "stats", status=1)
    assert "a mistake in railhop itself, at cli_test.py:" in said


# ---- env and run.


def test_env_quotes_for_each_shell(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/a b/it's")
    out = good(capsys, "env")
    assert "export NCCL_NET_PLUGIN=railhop\n" in out
    assert """:/a b/it'"'"'s'\n""" in out
    assert "set -gx NCCL_NET_PLUGIN 'railhop';" in good(capsys, "env", "--shell", "fish")
    assert good_json(capsys, "env", "--json")["LD_LIBRARY_PATH"].endswith(":/a b/it's")


def test_env_names_the_fabrics_that_run(capsys: Capture) -> None:
    said = bad(capsys, "env", "--fabric", "nosuch")
    assert "nosuch" in said
    assert "has no fabric of that name; running: " in said
    with pytest.raises(railhop.NotFoundError, match="nosuch"):
        railhop.environment(fabric="nosuch")


def test_run_says_what_is_wrong(capsys: Capture) -> None:
    assert "missing argument" in bad(capsys, "run")
    assert "--host is about a fabric" in bad(capsys, "run", "--host", "beta", "--", "true")
    assert "'no-such-cmd' was not found" in bad(capsys, "run", "--", "no-such-cmd", status=127)
    assert "cannot be run" in bad(capsys, "run", "--", "/etc", status=126)


# ---- Jobs.


def test_status_shows_ports_connections_and_episodes(
    capsys: Capture, jobs: list[FakeProcess]
) -> None:
    out = good(capsys, "status", "--pid", "101")
    for expected in (
        "process 101 on node-16", "python train.py", "job a", "mlx5_0:1", "up", "400 Gb/s",
        "1 healthy", "1 on backup", "node-17", "3 of 9", "port down", "1.9 ms", "524 kB",
    ):  # fmt: skip
        assert expected in out, expected
    assert "\x1b[" not in out
    found = good_json(capsys, "status", "--json")
    assert [one["process"]["pid"] for one in found] == [101, 102]


def test_status_check_judges(capsys: Capture, jobs: list[FakeProcess]) -> None:
    good(capsys, "status", "--check")
    jobs[1].verdict = "degraded"
    assert main(["status", "--check"]) == 1
    assert "degraded" in capsys.readouterr().out


def test_without_jobs_status_is_empty_and_commands_say_why(
    capsys: Capture, jobs: list[FakeProcess]
) -> None:
    jobs.clear()
    assert "No process with Railhop" in good(capsys, "status")
    assert good_json(capsys, "status", "--json") == []
    assert main(["status", "--check"]) == 1
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err) == (1, "")
    assert "No process with Railhop" in said.out
    for words in (["failover", "mlx5_0"], ["events"], ["stats"], ["config"], ["failback"]):
        assert "no process with Railhop runs on this node; start" in bad(capsys, *words)


def test_a_folder_that_no_job_has_made_yet_has_nobody_in_it(
    capsys: Capture, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILHOP_ADMIN_DIR", str(tmp_path / "none"))
    why = f"RAILHOP_ADMIN_DIR={tmp_path / 'none'}: the folder does not exist: "
    assert why in good(capsys, "status")
    assert main(["status", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == []
    assert why in said.err
    assert main(["status", "--check"]) == 1
    capsys.readouterr()
    for words in (["failover", "mlx5_0"], ["events"], ["stats", "--job", "a"]):
        assert why in bad(capsys, *words)


def test_processes_that_cannot_be_asked_are_told(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        select, "processes", lambda: select.Seen(others=["process 9 is of another user"])
    )
    said = bad(capsys, "stats")
    assert "1 cannot be asked: process 9 is of another user" in said


def test_a_process_that_does_not_answer_is_named_and_stops_commands(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        def __init__(self, one: FakeProcess, error: Optional[Exception]) -> None:
            self.pid, self.error, self.one = one.pid, error, one
            self.info = None if error else one
            self.problem = str(error or "")

        def attach(self, timeout_s: float = 0) -> FakeProcess:
            if self.error:
                raise self.error
            return self.one

    found = [
        Found(jobs[0], None),
        Found(jobs[1], railhop.NoAnswerError("102.sock: no answer within 1 s")),
        Found(FakeProcess(103), railhop.StaleSocketError("103.sock: nobody listens there")),
    ]
    monkeypatch.undo()
    monkeypatch.setattr(railhop, "processes", lambda timeout_s=1.0: found, raising=False)
    line = "process 102 does not answer: 102.sock: no answer"
    for words in (["failover", "mlx5_0"], ["hold", "mlx5_0", "--job", "a"], ["release", "mlx5_0"],
                  ["config", "--set", "RAILHOP_HOLD_DOWN=2s"]):  # fmt: skip
        said = bad(capsys, *words)
        assert line in said
        assert "nothing has changed" in said
    assert jobs[0].said == []
    assert line in good(capsys, "status", "--job", "a")
    assert main(["status", "--check"]) == 1
    said = capsys.readouterr().out
    assert line in said
    assert "103" not in said
    assert main(["status", "--check", "--json"]) == 1
    assert line in capsys.readouterr().err
    assert main(["stats"]) == 0
    assert line in capsys.readouterr().err


def test_the_wrong_process_is_named(capsys: Capture, jobs: list[FakeProcess]) -> None:
    assert "process 7 does not run Railhop" in bad(capsys, "status", "--pid", "7")
    assert "nobody listens" in bad(capsys, "stats", "--socket", "/run/railhop/7.sock")
    assert "no job 'c' with Railhop on this node (jobs here: a, b)" in bad(
        capsys, "hold", "mlx5_0", "--job", "c"
    )
    assert "exclude each other" in bad(capsys, "events", "--pid", "101", "--job", "a")


def test_commands_reach_all_processes_or_those_of_a_job(
    capsys: Capture, jobs: list[FakeProcess]
) -> None:
    assert good(capsys, "failover", "mlx5_0") == "101: failover mlx5_0\n102: failover mlx5_0\n"
    good(capsys, "hold", "mlx5_1", "--job", "b")
    good(capsys, "release", "mlx5_1", "--pid", "102")
    assert good_json(capsys, "failback", "--json", "--pid", "101")[0]["pid"] == 101
    assert jobs[0].said == [("failover", "mlx5_0", "drain"), ("failback", "")]
    assert jobs[1].said == [
        ("failover", "mlx5_0", "drain"), ("hold", "mlx5_1"), ("release", "mlx5_1"),
    ]  # fmt: skip


def test_a_refusal_changes_nothing_anywhere(capsys: Capture, jobs: list[FakeProcess]) -> None:
    jobs.append(FakeProcess(103, refuses=True))
    said = bad(capsys, "failover", "mlx5_0", "--mode", "now")
    assert "process 103: mlx5_0 is the last path of 4 connections" in said
    assert "undone in 2 other(s)" in said
    for one in jobs[:2]:
        assert one.said == [
            ("failover", "mlx5_0", "now"), ("release", "mlx5_0"), ("failback", "mlx5_0"),
        ]  # fmt: skip
    assert jobs[2].said == []


def test_of_a_connection_the_sending_end_alone_is_asked(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def processes(timeout_s: float = 1.0) -> list[Any]:
        return [Record(pid=102, info=Record(pid=102, instance="a1b2c3d4e5f60718"))]

    monkeypatch.setattr(railhop, "processes", processes, raising=False)
    jobs[0].direction = "receive"
    for name in ("connection:1f", "connection:0x1f", "connection:000000000000001f"):
        assert good(capsys, "failover", name) == f"102: failover {name}\n"
        assert good(capsys, "failback", name) == f"102: failback {name}\n"
    assert jobs[0].said == []
    said = bad(capsys, "failover", "connection:1f", "--pid", "101")
    assert "process 101: the sending end chooses where a connection goes: ask its process, " in said
    assert "on node-17 (process 102: --pid 102)" in said
    monkeypatch.setattr(railhop, "processes", lambda timeout_s=1.0: [], raising=False)
    said = bad(capsys, "failback", "connection:1f", "--pid", "101")
    assert "on node-17 (instance a1b2c3d4e5f60718 there)" in said
    said = bad(capsys, "failover", "connection:99")
    assert "none of the 2 processes has a connection 99: 'railhop status" in said
    assert jobs[0].said == []


def test_a_device_that_is_not_there_is_named(capsys: Capture, jobs: list[FakeProcess]) -> None:
    said = bad(capsys, "hold", "mlx5_9", "--pid", "101")
    assert "no device 'mlx5_9' (devices: mlx5_0, mlx5_1)" in said
    assert jobs[0].said == []


def test_events_are_merged_by_time(capsys: Capture, jobs: list[FakeProcess]) -> None:
    out = good(capsys, "events")
    assert out.count("episode recovered mlx5_1:1 to node-17 mlx5_1:1 (port down) after 1.9 ms") == 6
    lines = [json.loads(line) for line in good(capsys, "events", "--json").splitlines()]
    assert [one["time_unix_ns"] for one in lines] == sorted(one["time_unix_ns"] for one in lines)
    assert {one["process"] for one in lines} == {101, 102}
    assert good(capsys, "events", "--after", "2", "--pid", "101").count("\n") == 1


def test_events_are_followed_to_the_end_of_all(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = jobs[0].events
    asked: list[float] = []

    def events(after: int = 0, limit: int = 1024, wait_s: float = 0.0) -> Record:
        # One at a time: what is left comes with later questions, each for what is behind the last.
        asked.append(wait_s)
        return first(after, min(limit, 1), wait_s)

    monkeypatch.setattr(jobs[0], "events", events)
    lines = good(capsys, "events", "--follow", "--json").splitlines()
    serials: dict[int, list[int]] = {}
    for line in lines:
        entry = json.loads(line)
        serials.setdefault(entry["process"], []).append(entry["serial"])
    assert serials == {101: [1, 2, 3], 102: [1, 2, 3]}
    assert any(asked), "it has waited for the next"


def test_a_process_that_falls_silent_ends_the_following(
    capsys: Capture, jobs: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Record(events=[], gone=0, last_serial=0)]

    def silent(after: int = 0, limit: int = 1024, wait_s: float = 0.0) -> Record:
        if not answers:
            raise railhop.NoAnswerError("102.sock: no answer within 10 s")
        return answers.pop()

    monkeypatch.setattr(jobs[1], "events", silent)
    assert main(["events", "--follow", "--json"]) == 2
    said = capsys.readouterr()
    assert said.err == "railhop: 102.sock: no answer within 10 s\n"
    assert said.out.count("\n") == 3


def test_stats_and_config(capsys: Capture, jobs: list[FakeProcess]) -> None:
    out = good(capsys, "stats", "--pid", "101")
    for expected in ("5 GB", "1,000", "port down 1", "resume", "1.9 ms"):
        assert expected in out, expected
    assert good_json(capsys, "stats", "--json")[1]["process"]["pid"] == 102
    assert "RAILHOP_STALL_THRESHOLD" in good(capsys, "config", "--pid", "101")
    changed = good_json(capsys, "config", "--changed", "--json", "--pid", "101")
    assert [one["name"] for one in changed[0]["options"]] == ["RAILHOP_HOLD_DOWN"]
    out = good(capsys, "config", "--set", "RAILHOP_HOLD_DOWN=2s", "--pid", "101")
    assert out == "101: RAILHOP_HOLD_DOWN=2s (command)\n"
    assert "write NAME=VALUE" in bad(capsys, "config", "--set", "RAILHOP_HOLD_DOWN")
    assert "no option 'X'" in bad(capsys, "config", "--set", "X=1")


# ---- Drills and reports, as far as nothing runs.


def test_scenarios_are_listed(capsys: Capture) -> None:
    assert "nic-down" in good(capsys, "drill", "--list")
    assert "nic-down" in [one["name"] for one in good_json(capsys, "drill", "--list", "--json")]


def test_a_bad_drill_is_named_before_it_begins(capsys: Capture, tmp_path: pathlib.Path) -> None:
    over = ("drill", "--fabric", "two-hosts-4nic")
    assert "no scenario; say --scenario" in bad(capsys, *over)
    assert "did you mean 'nic-down'" in bad(capsys, *over, "--scenario", "nic-dwn")
    assert "'3' is no time" in bad(capsys, *over, "--scenario", "nic0 down at 3")
    assert "no fabric and no NIC: this machine has no RDMA device; say --fabric" in bad(
        capsys, "drill", "--scenario", "nic-down"
    )
    assert "no fabric: " in bad(capsys, "drill", "--fabric", "nowhere", "--scenario", "nic-down")
    assert "write NAME=VALUE" in bad(capsys, *over, "--scenario", "nic-down", "--env", "X")
    assert "--each-host is about CMD" in bad(capsys, *over, "--scenario", "nic-down", "--each-host")
    missing = str(tmp_path / "none" / "x.html")
    twice = str(tmp_path / "same.x")
    for first, second in (("--save", "--report"), ("--report", "--png"), ("--save", "--png")):
        said = bad(capsys, *over, "--scenario", "nic-down", first, twice, second, twice)
        assert f"{second} {twice}: {first} writes it too; name another file" in said
    ours = tmp_path / "ours.scenario"
    ours.write_text("nic0 down at 3s\n", encoding="utf-8")
    said = bad(capsys, *over, "--scenario", str(ours), "--save", str(ours))
    assert f"--save {ours}: it is read by this command" in said
    assert "there is no folder" in bad(capsys, *over, "--scenario", "nic-down", "--report", missing)


def test_a_report_is_written_and_a_damaged_journal_is_one_line(
    capsys: Capture, tmp_path: pathlib.Path
) -> None:
    drill, page = tmp_path / "drill.json", tmp_path / "report.html"
    drill.write_text(samples.drill().dump(), encoding="utf-8")
    assert good(capsys, "report", str(drill), "-o", str(page)) == f"{page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    said = good_json(capsys, "report", str(drill), "-o", str(page), "--json")
    assert said == {"html": str(page), "png": None}
    page.unlink()
    damaged = tmp_path / "journal.jsonl"
    damaged.write_text(samples.journal()[:-40], encoding="utf-8")
    assert "journal.jsonl:19: no JSON" in bad(capsys, "report", str(damaged), "-o", str(page))
    assert "No such file" in bad(capsys, "report", "nowhere", "-o", str(page))
    assert not page.exists()


def test_a_report_never_replaces_what_it_is_made_of(
    capsys: Capture, tmp_path: pathlib.Path
) -> None:
    drill, text = tmp_path / "drill.json", samples.drill().dump()
    drill.write_text(text, encoding="utf-8")
    link, hard = tmp_path / "link.html", tmp_path / "hard.html"
    link.symlink_to(drill)
    os.link(drill, hard)
    page = str(tmp_path / "page.html")
    for name in (str(drill), f"{tmp_path}/./drill.json", str(link), str(hard)):
        said = bad(capsys, "report", str(drill), "-o", name)
        assert f"-o {name}: it is read by this command; name another file" in said
        assert "--png" in bad(capsys, "report", str(drill), "-o", page, "--png", name)
    assert "--png" in bad(capsys, "report", str(drill), "-o", page, "--png", page)
    assert drill.read_text(encoding="utf-8") == text
    assert good(capsys, "report", str(drill), "-o", "/dev/null") == "/dev/null\n"


def test_netperf_without_a_nic_says_what_a_drill_says(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CliError, match=r"no fabric and no NIC: .* say --fabric two-hosts-4nic to"):
        need_nics("measure", tmp_path)
    (tmp_path / "mlx5_0").mkdir()
    need_nics("measure", tmp_path)
