"""Debian's verbs programs, unmodified, over the software fabric."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from railhop.testing.fabric import Fabric

from integration.perftest.programs import TIMEOUT_S, Control, Pair, wait_for_traffic

LIBRARY_DIR = pathlib.Path(os.environ["RAILHOP_TEST_LIBRARY"]).resolve().parent
NAME = f"perftest-{os.getpid()}"
# perftest's retry count is 7 and cannot be set: a request is tried 8 times.
TRIES = 8


def ack_timeout_s(code: int) -> float:
    """Of a verbs timeout code."""
    return 4.096e-6 * 2.0**code


@pytest.fixture(name="fabric")
def _fabric() -> Iterator[Fabric]:
    with Fabric(name=NAME, library_dir=LIBRARY_DIR) as fabric:
        yield fabric


@pytest.fixture(name="control")
def _control() -> Control:
    return Control(NAME)


def test_devinfo_shows_the_devices() -> None:
    command = [os.environ["RAILHOP_TEST_CONTROL"], "run", "--no-sysfs"]
    command += ["--library-dir", str(LIBRARY_DIR), "--", "ibv_devinfo", "-v"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    found = re.findall(r"hca_id:\s+(\S+)", done.stdout)
    assert found == ["soft0", "soft1", "soft2", "soft3"]
    assert len(re.findall(r"state:\s+PORT_ACTIVE \(4\)", done.stdout)) == 4
    assert len(re.findall(r"link_layer:\s+Ethernet", done.stdout)) == 4
    assert "atomic_cap:" in done.stdout
    assert re.search(r"GID\[\s*\d+\]:\s+::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2", done.stdout)


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("ibv_rc_pingpong", ["-g", "0", "-c"]),
        ("ibv_rc_pingpong", ["-g", "0", "-c", "-e"]),
        ("ibv_rc_pingpong", ["-g", "3", "-s", "65536", "-m", "4096"]),
        ("ibv_uc_pingpong", ["-g", "0"]),
        ("ibv_uc_pingpong", ["-g", "0", "-e"]),
        ("ib_write_bw", ["-n", "1000"]),
        ("ib_write_bw", ["-n", "1000", "--use_old_post_send"]),
        ("ib_write_bw", ["-n", "1000", "-q", "4", "-b"]),
        ("ib_write_bw", ["-n", "200", "-s", "1048576", "-x", "3"]),
        ("ib_write_bw", ["-n", "5", "-a"]),
        ("ib_write_bw", ["-n", "1000", "-c", "UC"]),
        ("ib_write_lat", ["-n", "1000"]),
        ("ib_write_lat", ["-n", "1000", "-I", "0"]),
        ("ib_read_bw", ["-n", "1000"]),
        ("ib_read_bw", ["-n", "1000", "--use_old_post_send"]),
        ("ib_read_lat", ["-n", "1000"]),
        ("ib_send_bw", ["-n", "1000"]),
        ("ib_send_bw", ["-n", "1000", "--use_old_post_send"]),
        ("ib_send_bw", ["-n", "1000", "-e"]),
        ("ib_send_bw", ["-n", "1000", "-c", "UC"]),
        ("ib_send_lat", ["-n", "1000"]),
        ("ib_send_lat", ["-n", "500", "-e"]),
        ("ib_atomic_bw", ["-n", "1000", "-A", "FETCH_AND_ADD"]),
        ("ib_atomic_bw", ["-n", "1000", "-A", "CMP_AND_SWAP"]),
        ("ib_atomic_lat", ["-n", "1000"]),
    ],
)
def test_program_works(fabric: Fabric, program: str, options: list[str]) -> None:
    extra = [] if program.startswith("ibv_") else ["-F"]
    with Pair(fabric, program, [*options, *extra]) as pair:
        client = pair.wait_client()
        server = pair.wait_server()
    assert client.status == 0, client.output
    assert server.status == 0, server.output


# -D runs for so long unless something ends it: the tests below do.
ENDLESS = ["-F", "-D", "100"]


@pytest.mark.parametrize("device", ["soft0", "soft1"])
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"])
def test_cable_pulled_gives_status_12_after_all_tries(
    fabric: Fabric, control: Control, program: str, device: str
) -> None:
    code = 15
    with Pair(fabric, program, [*ENDLESS, "-u", str(code)]) as pair:
        wait_for_traffic(fabric)
        before = time.monotonic()
        control.fault(device, "down")
        after = time.monotonic()
        client = pair.wait_client()
        end = time.monotonic()
    assert client.status != 0
    assert re.search(r"[Ff]ailed status 12", client.output), client.output
    patience = TRIES * ack_timeout_s(code)
    # Not before the last try has had its time; the timer of the first try may have begun just
    # before the cable went. An upper bound for a machine with many other things to do.
    assert end - before > patience - ack_timeout_s(code)
    assert end - after < patience + 10


def test_a_longer_timeout_takes_longer(fabric: Fabric, control: Control) -> None:
    code = 18
    with Pair(fabric, "ib_write_bw", [*ENDLESS, "-u", str(code)]) as pair:
        wait_for_traffic(fabric)
        before = time.monotonic()
        control.fault("soft1", "down")
        client = pair.wait_client()
        end = time.monotonic()
    assert "status 12" in client.output, client.output
    patience = TRIES * ack_timeout_s(code)  # 8.6 s
    assert patience - ack_timeout_s(code) < end - before < patience + 20


@pytest.mark.parametrize("device", ["soft0", "soft1"])
@pytest.mark.parametrize("program", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_cable_back_in_time_gives_no_error(
    fabric: Fabric, control: Control, program: str, device: str
) -> None:
    # 8 tries of 0.54 s: the cable is out for a good tenth of that.
    with Pair(fabric, program, ["-F", "-D", "4", "-u", "17"]) as pair:
        wait_for_traffic(fabric)
        control.fault(device, "down")
        time.sleep(0.5)
        control.fault(device, "up")
        client = pair.wait_client()
        server = pair.wait_server()
    assert client.status == 0, client.output
    assert server.status == 0, server.output


def test_silence_gives_status_12_as_well(fabric: Fabric, control: Control) -> None:
    with Pair(fabric, "ib_write_bw", [*ENDLESS, "-u", "14"]) as pair:
        wait_for_traffic(fabric)
        control.fault("soft1", "blackhole", "rx")
        client = pair.wait_client()
    assert "status 12" in client.output, client.output


def test_unreliable_sender_notices_nothing(fabric: Fabric, control: Control) -> None:
    with Pair(fabric, "ib_write_bw", ["-F", "-D", "3", "-c", "UC"]) as pair:
        wait_for_traffic(fabric)
        control.fault("soft1", "blackhole")
        client = pair.wait_client()
    assert client.status == 0, client.output


def test_validated_pingpong_survives_loss(fabric: Fabric, control: Control) -> None:
    control.fault("soft0", "loss", "2%")
    with Pair(fabric, "ibv_rc_pingpong", ["-g", "0", "-c", "-n", "300", "-s", "20000"]) as pair:
        client = pair.wait_client()
        server = pair.wait_server()
    assert client.status == 0, client.output
    assert server.status == 0, server.output
