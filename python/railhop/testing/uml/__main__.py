"""The command line of tools/uml."""

import sys

from railhop.testing.uml.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
