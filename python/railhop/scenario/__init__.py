"""Scenarios: what goes wrong in a drill, and when.

    scenario = find("nic-down")                          # a named one
    scenario = find("mlx5_0 down at 3s for 5s")          # words
    scenario = find("site/our-switch.scenario")          # a file

A mistake raises ScenarioError, whose text is one line with the place, the word and what is allowed.
"""

from __future__ import annotations

from railhop.scenario.find import find, names
from railhop.scenario.parse import parse
from railhop.scenario.place import placed
from railhop.scenario.play import Player
from railhop.scenario.step import COMMANDS, Expectation, Scenario, ScenarioError, Step

__all__ = [
    "COMMANDS",
    "Expectation",
    "Player",
    "Scenario",
    "ScenarioError",
    "Step",
    "find",
    "names",
    "parse",
    "placed",
]
