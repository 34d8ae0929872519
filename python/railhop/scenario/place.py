"""`nic0`, `host1/nic2` and `peer/nic0` become a fabric's own names: scenarios fit any fabric."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence

from railhop.scenario.step import COMMANDS, SETTINGS, Scenario, ScenarioError, Step

_NIC = re.compile(r"nic(\d+)(:\d+)?")
_HOST = re.compile(r"host(\d+)")


def _host(step: Step, hosts: Sequence[str]) -> str:
    if not step.host:
        return hosts[0]
    if step.host in hosts:
        return step.host
    if step.host == "peer":
        if len(hosts) < 2:
            raise ScenarioError(f"{step.source}: there is no peer: {hosts[0]} is the only host")
        return hosts[1]
    found = _HOST.fullmatch(step.host)
    if found and int(found[1]) < len(hosts):
        return hosts[int(found[1])]
    raise ScenarioError(f"{step.source}: no host '{step.host}' (hosts: {', '.join(hosts)})")


def _device(step: Step, host: str, devices: Sequence[str]) -> str:
    if not step.target or step.target.startswith("connection:"):
        return step.target
    found = _NIC.fullmatch(step.target)
    if found and int(found[1]) < len(devices):
        return devices[int(found[1])] + (found[2] or "")
    if step.target.split(":")[0] in devices:
        return step.target
    # What is no statement is taken for a device's fault.
    near = difflib.get_close_matches(step.target, SETTINGS + COMMANDS, n=1, cutoff=0.75)
    hint = f"; did you mean the statement '{near[0]}'?" if near and step.verb == "fault" else ""
    raise ScenarioError(
        f"{step.source}: no device '{step.target}' on {host}{hint} (devices: "
        f"{', '.join(devices)}; or nic0 to nic{len(devices) - 1})"
    )


def placed(scenario: Scenario, devices: Mapping[str, Sequence[str]]) -> Scenario:
    """The scenario with the names of a fabric.

    Args:
      scenario: as written.
      devices: of each host, in order; the first host is the one meant when none is said.

    Errors: ScenarioError for a host or device that is not there, with those that are.
    """
    hosts = list(devices)
    steps = []
    for step in scenario.steps:
        host = _host(step, hosts)
        target = _device(step, host, devices[host])
        steps.append(dataclasses.replace(step, host=host, target=target))
    return dataclasses.replace(scenario, steps=tuple(steps))
