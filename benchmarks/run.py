"""Speed, printed as ratios and counts: ``python benchmarks/run.py [--quick] [NAME ...]``.

Not part of the tests: a shared machine is slow at times. Times are processor seconds of one core, the least of several
runs where that helps; bare Python's own start is printed beside those of the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import command_line
import configurations
import layers
import tapes
import validate

BENCHMARKS: dict[str, Callable[[bool], None]] = {
    "configurations": configurations.run,
    "layers": layers.run,
    "command_line": command_line.run,
    "tapes": tapes.run,
    "validate": validate.run,
}


def main() -> None:
    """Run the named benchmarks, all by default."""
    parser = argparse.ArgumentParser(description="Speed of slipstick, as ratios and counts.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--quick", action="store_true", help="a tenth of the points, fewer repetitions")
    chosen = parser.parse_args()
    for name in chosen.names or BENCHMARKS:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
        print(f"== {name}")
        BENCHMARKS[name](chosen.quick)


if __name__ == "__main__":
    main()
