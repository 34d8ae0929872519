"""Lines as the plugin writes them."""

from integration.gpu import plugin_log

_HEAD = "vm:17:99 [0] cc/runtime/driver_episode.cc:570 NCCL WARN NET/Railhop : "
_BEGUN = (
    f"{_HEAD}soft0:1 to beta: the port is down (the local port or its cable: the port is not "
    "active); 4 connection(s) leave it for other ports, the job goes on; check this port's cable\n"
)
_OVER = (
    f"{_HEAD}soft0:1 to beta: recovered after 14.5 ms: 4 connection(s) go on over soft1:1, "
    "soft2:1, 16777216 bytes were sent again (the local port or its cable: the port is not up)\n"
)


def test_read_episode_and_recovery_are_found() -> None:
    said = plugin_log.read(_BEGUN + _OVER)
    assert said.episodes == [
        {
            "port": "soft0:1",
            "to": "beta",
            "cause": "the port is down",
            "blame": "the local port or its cable: the port is not active",
            "connections": "4",
        }
    ]
    assert said.recoveries[0]["ms"] == 14.5
    assert said.recoveries[0]["over"] == "soft1:1, soft2:1"
    assert said.recoveries[0]["bytes"] == 16777216
    assert said.warnings == []


def test_read_port_that_is_used_again_is_found() -> None:
    said = plugin_log.read("vm NCCL INFO NET/Railhop : soft0:1: 4 connection(s) are back on it\n")
    assert said.back == ["soft0:1"]


def test_read_connection_given_up_is_found() -> None:
    said = plugin_log.read(f"{_HEAD}sends to vm: the connection is given up: no path for 5min\n")
    assert said.given_up == ["sends to vm: the connection is given up: no path for 5min"]


def test_read_other_warning_is_kept() -> None:
    said = plugin_log.read(f"{_HEAD}something else\nvm NCCL INFO NET/Railhop : option X=1\n")
    assert said.warnings == ["NET/Railhop : something else"]
    assert said.episodes == []
