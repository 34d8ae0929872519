"""Guests: programs, results, and that nothing stays behind. Faults are in faults_test.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from railhop.testing.uml import Guest, GuestError, KernelMissingError, find_kernel
from railhop.testing.uml.machine import group_members

PERFTEST_PORT = 18515


@pytest.fixture(scope="module", name="guest")
def _guest() -> Iterator[Guest]:
    with Guest(rails=2) as guest:
        yield guest


def test_boot_has_working_devices(guest: Guest) -> None:
    assert guest.devices == ["rxa0", "rxb0", "rxa1", "rxb1"]
    for device in guest.devices:
        assert guest.link(device).port_state() == "ACTIVE"
    listed = guest.run(["ibv_devices"]).output.split()
    assert set(guest.devices) <= set(listed)


def test_boot_gives_addresses_and_gids(guest: Guest) -> None:
    state = guest.link("rxb1").state()
    assert state.addresses == ["10.0.1.2/24"]
    assert state.gids[1].endswith(":ffff:0a00:0102")
    assert state.mtu == 4500


def test_write_bandwidth_runs_between_the_ends_of_a_rail(guest: Guest) -> None:
    before = _sent_bytes(guest, "b0")
    server = guest.start("ib_write_bw -d rxa0 -x 1 -F -n 100")
    guest.wait_listening(PERFTEST_PORT)
    client = guest.start("ib_write_bw -d rxb0 -x 1 -F -n 100 127.0.0.1")
    assert client.wait() == 0, client.output()
    assert server.wait() == 0, server.output()
    # All of it went over the wire, not the short way over lo.
    assert _sent_bytes(guest, "b0") - before > 100 * 65536


def test_two_rails_are_separate(guest: Guest) -> None:
    guest.link("rxa1").cable_out()
    guest.link("rxa1").wait_port("DOWN")
    try:
        assert guest.link("rxa0").port_state() == "ACTIVE"
        assert guest.link("rxb1").port_state() == "ACTIVE"
    finally:
        guest.link("rxa1").cable_in()
        guest.link("rxa1").wait_port("ACTIVE")


@pytest.mark.parametrize(
    ("command", "status"), [("true", 0), ("exit 3", 3), ("kill -TERM $$", 128 + signal.SIGTERM)]
)
def test_exit_status_is_passed_on(guest: Guest, command: str, status: int) -> None:
    assert guest.run(command).status == status


def test_output_environment_and_directory(guest: Guest, tmp_path: Path) -> None:
    done = guest.run('echo "$WORD in $PWD"; echo error >&2', env={"WORD": "hello"}, cwd=tmp_path)
    assert done.output == f"hello in {tmp_path}\nerror\n"


def test_a_large_environment_arrives_and_the_guest_goes_on(guest: Guest) -> None:
    # More than the guest's terminal takes in at once.
    assert guest.run("echo ${#WORD}", env={"WORD": "x" * 100_000}).output == "100000\n"
    assert guest.run("exit 4").status == 4


def test_orders_from_many_threads_all_arrive(guest: Guest) -> None:
    statuses: dict[int, int] = {}

    def run(number: int) -> None:
        statuses[number] = guest.run(f"exit {number}").status

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {number: number for number in range(40)}


def test_a_missing_program_is_an_error(guest: Guest) -> None:
    with pytest.raises(ValueError, match="no-such-program"):
        guest.start(["no-such-program"])


def test_the_host_is_read_only_and_scratch_is_shared(guest: Guest) -> None:
    assert guest.run(["touch", str(Path(__file__).parent / "new")]).status != 0
    (guest.scratch / "from-host").write_text("to the guest")
    done = guest.run(f"cat {guest.scratch}/from-host; echo back >{guest.scratch}/from-guest")
    assert done.output == "to the guest"
    assert (guest.scratch / "from-guest").read_text() == "back\n"


def test_tmp_shows_the_host_and_keeps_what_the_guest_writes(guest: Guest) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="railhop-test-") as folder:
        file = Path(folder) / "file"
        file.write_text("seen")
        assert guest.run(f"cat {file}; echo changed >{file}; cat {file}").output == "seenchanged\n"
        assert file.read_text() == "seen"


def test_avx512_is_kept_from_glibc(guest: Guest) -> None:
    # The guest kernel loses that state over a signal (docs/kernel-fabric.md).
    assert "-AVX512F" in guest.run("echo $GLIBC_TUNABLES").output


def test_a_hanging_program_is_ended_with_its_children(guest: Guest) -> None:
    with pytest.raises(TimeoutError, match="half a line"):
        guest.run("echo half a line; sleep 1001 & sleep 1001", timeout_s=1)
    # The brackets keep this command from finding itself.
    assert guest.run("while pgrep -f 'sleep 100[1]'; do sleep 0.1; done").status == 0


def test_wait_output_ends_with_the_program(guest: Guest) -> None:
    with pytest.raises(TimeoutError, match="ended without 'never'"):
        guest.start("echo other").wait_output("never")


def test_console_noise_does_not_disturb(guest: Guest) -> None:
    noise = guest.start(
        'for i in $(seq 200); do echo \'{"event": "exit", "id": 1}\'; done >/dev/console'
    )
    assert guest.run("exit 5").status == 5
    assert noise.wait() == 0


def test_large_output_arrives_whole(guest: Guest) -> None:
    done = guest.run("seq 200000")
    assert done.output == "".join(f"{number}\n" for number in range(1, 200001))


def test_unknown_device_names_the_known_ones(guest: Guest) -> None:
    with pytest.raises(ValueError, match=r"rxa9: .*rxa0, rxb0, rxa1, rxb1"):
        guest.link("rxa9")


def test_close_leaves_no_process_and_no_file() -> None:
    shm = set(os.listdir("/dev/shm"))
    guest = Guest(rails=0)
    group, files = guest.process_group, guest.scratch
    guest.start("sleep 1000")
    guest.close()
    assert group_members(group) == []
    assert not files.exists()
    assert not [name for name in set(os.listdir("/dev/shm")) - shm if "vm_file" in name]


def test_killed_host_process_takes_its_guest_along() -> None:
    program = """
import time
from railhop.testing.uml import Guest
guest = Guest(rails=0)
print(guest.process_group, guest.scratch, flush=True)
guest.start("while :; do :; done")
time.sleep(1000)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        words = host.stdout.readline().split()
        group, scratch = int(words[0]), Path(words[1])
        assert group_members(group)
        host.kill()
        deadline = time.monotonic() + 30
        while (group_members(group) or scratch.exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert group_members(group) == []
        assert not scratch.exists()


def test_a_kernel_that_ends_at_once_is_an_error() -> None:
    with pytest.raises(GuestError, match="the guest has ended"):
        Guest(kernel=Path("/bin/true"))


def test_an_ended_guest_is_an_error_with_its_console() -> None:
    with Guest(rails=0) as guest:
        process = guest.start("echo last words >/dev/console; echo c >/proc/sysrq-trigger")
        with pytest.raises(GuestError, match="last words"):
            process.wait()


def test_a_missing_kernel_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAILHOP_UML_KERNEL", str(tmp_path / "linux"))
    with pytest.raises(KernelMissingError, match="RAILHOP_UML_KERNEL"):
        find_kernel()
    monkeypatch.delenv("RAILHOP_UML_KERNEL")
    monkeypatch.setenv("RAILHOP_CACHE", str(tmp_path))
    with pytest.raises(KernelMissingError, match="tools/uml build"):
        find_kernel()


def _sent_bytes(guest: Guest, netdev: str) -> int:
    return int(guest.read(f"/sys/class/net/{netdev}/statistics/tx_bytes"))
