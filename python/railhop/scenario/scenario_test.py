"""Scenarios: words, files and names; each mistake is named with its place."""

from __future__ import annotations

import pathlib
import threading

import pytest

from railhop.scenario import Player, Scenario, ScenarioError, Step, find, names, parse, placed

DEVICES = {"alpha": ["mlx5_0", "mlx5_1"], "beta": ["mlx5_0", "mlx5_1"]}


def only(scenario: Scenario) -> Step:
    (step,) = scenario.steps
    return step


def test_words_become_a_timed_fault() -> None:
    step = only(parse("mlx5_0 down at 3s for 5s"))
    assert (step.verb, step.target, step.words) == ("fault", "mlx5_0", "down for 5s")
    assert (step.at_s, step.for_s, step.end_s) == (3.0, 5.0, 8.0)


def test_at_may_stand_anywhere_and_is_taken_out() -> None:
    for text in ("at 500ms beta/nic1:1 loss 1% seed 7", "beta/nic1:1 loss at 500ms 1% seed 7"):
        step = only(parse(text))
        assert (step.at_s, step.host, step.target) == (0.5, "beta", "nic1:1")
        assert step.words == "loss 1% seed 7"


def test_without_at_it_happens_when_traffic_is_steady() -> None:
    assert only(parse("nic0 down")).at_s == 3.0


def test_steps_are_in_order_of_time_and_the_end_is_behind_the_last() -> None:
    scenario = parse("nic1 down at 5s for 2s; nic0 down at 1s  # early\n")
    assert [step.target for step in scenario.steps] == ["nic0", "nic1"]
    assert scenario.lasts_s == 11.0


def test_a_command_for_a_time_is_undone() -> None:
    first, second = parse("failover nic0 now at 2s for 3s").steps
    assert (first.verb, first.words, first.at_s) == ("failover", "now", 2.0)
    assert (second.verb, second.target, second.at_s) == ("release", "nic0", 5.0)
    assert parse("failover connection:1f for 3s").steps[1].verb == "failback"
    first, second = parse("hold nic0:1 at 2s for 1s").steps
    assert (first.verb, second.verb, second.target) == ("hold", "release", "nic0:1")


def test_settings_say_what_is_expected() -> None:
    scenario = parse("about One; two.\nlasts 20s\ngap 1500ms\nexpect no-failback death\nnic0 down")
    assert (scenario.about, scenario.lasts_s) == ("One; two.", 20.0)
    assert scenario.expect.gap_ms_max == 1500.0
    assert parse("nic0 down").expect.gap_ms_max == 2000.0
    assert parse("nic0 down; gap 0s").expect.gap_ms_max == 0
    assert scenario.expect.fails_back is False
    assert scenario.expect.survives is False


@pytest.mark.parametrize(
    ("text", "place", "named"),
    [
        ("nic0 down at 3", "words:1:14:", "'3' is no time"),
        ("nic0 down\nnic0 down at", "words:2:11:", "'at' needs a time"),
        ("nic0 down at 1s at 2s", "words:1:17:", "'at' is said twice"),
        ("nic0 down for ever", "words:1:15:", "'ever' is no time"),
        ("nic0", "words:1:1:", "'nic0' is followed by nothing"),
        ("at 3s", "words:1:1:", "nothing happens"),
        ("ni/c/0 down", "words:1:1:", "names no device"),
        ("failover at 3s", "words:1:1:", "needs a target"),
        (
            "nic1 down; failover nic0 gently",
            "words:1:26:",
            "no mode 'gently' (allowed: now, drain)",
        ),
        ("hold nic0 hard", "words:1:11:", "'hard' is too much"),
        ("release nic0 for 2s", "words:1:1:", "nothing undoes it"),
        ("expect joy", "words:1:8:", "'joy' cannot be expected (allowed: failback"),
        ("lasts 3s; nic0 down at 5s", "words:1:", "after the scenario's end"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, place: str, named: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(text)
    assert str(caught.value).startswith(place)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_named_scenario_is_right_and_says_what_it_is() -> None:
    known = names()
    assert {"nic-down", "flap", "black-hole", "drain", "no-fault"} <= set(known)
    for name, scenario in known.items():
        assert scenario.name == name
        assert scenario.about.endswith("."), name
        assert scenario.expect.gap_ms_max > 0, name


def test_find_takes_names_files_and_words(tmp_path: pathlib.Path) -> None:
    assert find("nic-down").name == "nic-down"
    file = tmp_path / "ours.scenario"
    file.write_text("nic0 down\n", encoding="utf-8")
    assert find(str(file)).name == "ours"
    assert find("nic0 down at 1s").name == "nic0 down at 1s"
    assert find("nic0  down\n\nlasts 9s").name == "nic0 down; lasts 9s"


def test_find_names_what_there_is(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ScenarioError, match="no scenario 'nic-dwn'; did you mean 'nic-down'"):
        find("nic-dwn")
    for text in (f"{tmp_path}/none", f"{tmp_path}/no file.scenario", "none.scenario"):
        with pytest.raises(ScenarioError) as caught:
            find(text)
        assert str(caught.value).startswith(f"{text}: no such file; ")
    with pytest.raises(ScenarioError, match=f"{tmp_path}: is a folder"):
        find(str(tmp_path))
    with pytest.raises(ScenarioError, match="an empty scenario"):
        find(" ")
    file = tmp_path / "bad.scenario"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"bad\.scenario: this is no text"):
        find(str(file))
    file.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="nothing happens in it"):
        find(str(file))


def test_placed_knows_nics_by_number_and_hosts_by_part() -> None:
    scenario = placed(
        parse("nic1 down; peer/nic0 down; host1/mlx5_1:1 down; beta/nic1 down"), DEVICES
    )
    assert [step.place for step in scenario.steps] == [
        "alpha/mlx5_1", "beta/mlx5_0", "beta/mlx5_1:1", "beta/mlx5_1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nic2 down", "no device 'nic2' on alpha (devices: mlx5_0, mlx5_1"),
        ("soft0 down", "no device 'soft0' on alpha (devices: mlx5_0"),
        ("last 5s", "no device 'last' on alpha; did you mean the statement 'lasts'? (devices"),
        ("expects failback", "did you mean the statement 'expect'?"),
        ("failovr mlx5_0", "did you mean the statement 'failover'?"),
        ("gamma/nic0 down", "no host 'gamma' (hosts: alpha, beta)"),
        ("host2/nic0 down", "no host 'host2'"),
    ],
)
def test_placed_names_what_is_not_there(text: str, named: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        placed(parse(text), DEVICES)
    assert named in str(caught.value)
    assert str(caught.value).startswith("words:1:")


def test_the_player_does_all_steps_in_order() -> None:
    done: list[str] = []
    player = Player(
        parse("nic0 down at 20ms; nic1 down at 0s"), lambda step: done.append(step.target)
    )
    player.start()
    assert player.done.wait(60)
    player.stop()
    assert done == ["nic1", "nic0"]
    assert [step.target for step, _ in player.acted] == done
    assert player.error == ""


def test_a_step_that_fails_ends_the_play_with_its_text() -> None:
    def refuse(step: Step) -> None:
        raise ValueError(f"{step.target} is the last path")

    player = Player(parse("hold nic0 at 0s; hold nic1 at 0s"), refuse)
    player.start()
    assert player.done.wait(60)
    player.stop()
    assert player.error == "words:1: 'hold nic0': nic0 is the last path"
    assert player.acted == []


def test_a_stopped_player_does_nothing_more() -> None:
    reached = threading.Event()
    player = Player(parse("nic0 down at 1h; nic0 down at 0s"), lambda _step: reached.set())
    player.start()
    assert reached.wait(60)
    player.stop()
    assert len(player.acted) == 1
