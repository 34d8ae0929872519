"""Prints docs/reference/torch.md: tools/dev/torch_reference.py, run where torch is."""

from __future__ import annotations

import os
import subprocess
import sys

from integration.torch.job import PYTHON_PATH, torch_python


def page() -> str:
    """The text."""
    return subprocess.run(
        [torch_python(), "-m", "tools.dev.torch_reference"],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


if __name__ == "__main__":
    sys.stdout.write(page())
