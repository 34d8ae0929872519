"""What Railhop has said of faults and recoveries, counted from a job's log."""

from __future__ import annotations

import dataclasses
import re

_BEGUN = re.compile(
    r"NET/Railhop : (\S+) to (\S+): (.*) \(([^()]*)\); (\d+) connection\(s\) leave it for other"
)
_RECOVERED = re.compile(
    r"NET/Railhop : (\S+) to (\S+): recovered after ([\d.]+) ms: (\d+) connection\(s\) go on over "
    r"(.*), (\d+) bytes were sent again"
)
_BACK = re.compile(r"NET/Railhop : (\S+): (\d+) connection\(s\) are back on it")
_GIVEN_UP = re.compile(r"NET/Railhop : (.*the connection is given up: .*)")


@dataclasses.dataclass
class Said:
    """All that one part of a job's log says."""

    episodes: list[dict[str, str]] = dataclasses.field(default_factory=list)
    recoveries: list[dict[str, float | str]] = dataclasses.field(default_factory=list)
    back: list[str] = dataclasses.field(default_factory=list)
    given_up: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)


def read(text: str) -> Said:
    """Episodes, recoveries, ports that are used again, connections that were given up."""
    said = Said()
    for line in text.splitlines():
        if "NET/Railhop" not in line or "journal" in line:
            continue
        if found := _BEGUN.search(line):
            port, host, cause, blame, count = found.groups()
            said.episodes.append(
                {"port": port, "to": host, "cause": cause, "blame": blame, "connections": count}
            )
        elif found := _RECOVERED.search(line):
            port, host, after, count, over, again = found.groups()
            said.recoveries.append(
                {
                    "port": port,
                    "to": host,
                    "ms": float(after),
                    "connections": float(count),
                    "over": over,
                    "bytes": float(again),
                }
            )
        elif found := _BACK.search(line):
            said.back.append(found[1])
        elif found := _GIVEN_UP.search(line):
            said.given_up.append(found[1])
        elif " WARN " in line:
            said.warnings.append(line[line.index("NET/Railhop") :])
    return said
