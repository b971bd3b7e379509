"""`python -m runlane` is the `runlane` command."""

import sys

from runlane.cli import main

if __name__ == "__main__":
    sys.exit(main())
