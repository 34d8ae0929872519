"""tools/uml as a command."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from railhop.testing.uml.kernel import CHECKOUT

UML = CHECKOUT / "tools" / "uml"


def uml(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([UML, *words], capture_output=True, text=True, check=False, cwd=cwd)


def test_run_passes_directory_output_and_status_on(tmp_path: Path) -> None:
    done = uml("run", "-n", "1", "--", "sh", "-c", "pwd; echo oh >&2; exit 3", cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\n"
    assert done.stderr == "oh\n"
    assert done.returncode == 3


def test_run_makes_the_rails_that_are_asked_for() -> None:
    done = uml("run", "-n", "3", "--mtu", "1500", "--", "railhop-link")
    assert done.stdout.splitlines()[-1] == (
        "rxb2: port ACTIVE, cable in, up, mtu 1500, address 10.0.2.2/24, faults none"
    )
    assert len(done.stdout.splitlines()) == 6


def test_run_shares_a_folder(tmp_path: Path) -> None:
    done = uml(
        "run", "-n", "0", "--scratch", str(tmp_path), "--", "sh", "-c", "echo x >$RAILHOP_SCRATCH/f"
    )
    assert done.returncode == 0, done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


def test_run_ends_a_hanging_command() -> None:
    done = uml("run", "-n", "0", "-t", "1", "--", "sh", "-c", "echo begun; sleep 1000")
    assert done.returncode == 124
    assert done.stdout == "begun\n"
    assert "after 1 s" in done.stderr


def test_run_with_two_hosts_runs_the_command_on_both() -> None:
    done = uml(
        *("run", "-n", "1", "--two-hosts", "--", "sh", "-c"),
        "railhop-link; [ $RAILHOP_HOST = a ] || exit 7",
    )
    lines = sorted(done.stdout.splitlines())
    assert lines[0].startswith("a| rxa0: port ACTIVE")
    assert lines[1].startswith("b| rxb0: port ACTIVE")
    assert len(lines) == 2
    assert done.returncode == 7


def test_run_of_a_missing_program_is_127() -> None:
    done = uml("run", "-n", "0", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_a_terminated_run_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [str(UML), "run", "-n", "0", "--", "sh", "-c", "echo begun; sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        assert list(tmp_path.iterdir())
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 30
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


def test_wrong_words_are_named() -> None:
    assert "'99' is not a number between 0 and 32" in uml("run", "-n", "99", "--", "true").stderr
    assert "a command is missing" in uml("run").stderr
    assert "invalid choice: 'walk'" in uml("walk").stderr
    assert uml().returncode == 2
    assert "tools/uml build" in uml("--help").stdout


def test_build_prints_the_kernel_that_is_there() -> None:
    done = uml("build")
    assert done.returncode == 0, done.stderr
    assert os.access(done.stdout.strip(), os.X_OK)
