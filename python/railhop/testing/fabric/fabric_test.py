"""Fabrics from Python: programs run over them, faults act, errors name the word."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest

from railhop.testing.fabric import Fabric

LIBRARY = pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve().parent


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(seed=3, library_dir=LIBRARY) as made:
        yield made


def port_of(fabric: Fabric, device: str) -> dict[str, object]:
    devices = fabric.snapshot()["devices"]
    return next(d for d in devices if d["name"] == device)["ports"][0]  # type: ignore[no-any-return]


def write_bw(fabric: Fabric, seconds: int) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    port = 20000 + os.getpid() % 20000
    common = ["ib_write_bw", "-F", "-D", str(seconds), "-u", "12", "-p", str(port)]
    server = fabric.popen([*common, "-d", "soft1"])
    time.sleep(0.5)
    return server, fabric.popen([*common, "-d", "soft0", "127.0.0.1"])


def test_programs_see_the_devices(fabric: Fabric) -> None:
    program = fabric.popen(["ibv_devices"])
    output, _ = program.communicate(timeout=60)
    assert program.returncode == 0
    assert [f"soft{i}" in output for i in range(4)] == [True] * 4


def test_cable_out_ends_the_traffic_with_status_12(fabric: Fabric) -> None:
    server, client = write_bw(fabric, 20)
    deadline = time.monotonic() + 60
    while port_of(fabric, "soft0")["counters"]["tx_messages"] < 1000:  # type: ignore[index]
        assert time.monotonic() < deadline, "no traffic"
        time.sleep(0.05)
    fabric.fault("soft0 down")
    output, _ = client.communicate(timeout=60)
    assert client.returncode != 0
    assert "status 12" in output
    assert port_of(fabric, "soft0")["state"] == "DOWN"
    server.kill()
    server.communicate(timeout=60)


def test_trigger_lets_exactly_n_messages_pass(fabric: Fabric) -> None:
    fabric.fault("soft0 down after 1000 messages")
    server, client = write_bw(fabric, 20)
    output, _ = client.communicate(timeout=60)
    assert "status 12" in output
    assert port_of(fabric, "soft0")["counters"]["tx_messages"] == 1000  # type: ignore[index]
    assert any(line["kind"] == "port_state" for line in fabric.log())
    server.kill()
    server.communicate(timeout=60)


def test_attach_by_name_and_reference() -> None:
    with Fabric(name=f"py{os.getpid()}", library_dir=LIBRARY) as made:
        again = Fabric.attach(f"py{os.getpid()}")
        again.fault("soft2 down")
        assert port_of(made, "soft2")["state"] == "DOWN"
        third = Fabric.attach(reference=made.environment()["RAILHOP_FABRIC"])
        third.fault("soft2 up")
        assert port_of(made, "soft2")["state"] == "ACTIVE"


def test_a_program_keeps_its_own_search_path_behind_the_fabrics(fabric: Fabric) -> None:
    shown = fabric.popen(["sh", "-c", "echo $LD_LIBRARY_PATH"], env={"LD_LIBRARY_PATH": "/opt/own"})
    assert shown.communicate(timeout=60)[0] == f"{LIBRARY}:/opt/own\n"


def test_bad_words_are_named(fabric: Fabric) -> None:
    with pytest.raises(ValueError, match="'sideways'"):
        fabric.fault("soft0 blackhole sideways")
    with pytest.raises(ValueError, match="soft9"):
        fabric.fault("soft9 down")
    with pytest.raises(ValueError, match="no-such-topology"):
        Fabric("no-such-topology")
    with pytest.raises(RuntimeError, match="no-such-fabric"):
        Fabric.attach("no-such-fabric")


def test_closed_fabric_says_so(fabric: Fabric) -> None:
    fabric.close()
    with pytest.raises(RuntimeError, match="closed"):
        fabric.fault("soft0 down")
