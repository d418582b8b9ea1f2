"""``python -m slipstick`` and the ``slipstick`` script: both are the command line of ``core.face.cli``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line on the process's arguments; the exit status."""
    from slipstick.core.face.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
