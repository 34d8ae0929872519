"""`python -m railhop`: the program `railhop`, where its folder is not on the PATH."""

from __future__ import annotations

import sys

from railhop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
