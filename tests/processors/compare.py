"""Compare plans and releases of every kind between emulated processors.

    python -m tests.processors.compare [--on PROCESSOR ...] [--into FOLDER] [NAME ...]

makes releases (`tests.processors.releases`; all of them, or the ones with the given names) on this
machine as it is and on emulated processors, and prints every file and column or field that
differs, with its first differing values. All of them take minutes for each processor.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.processors.differences import differences
from tests.processors.emulated import PROCESSORS, output_of

RELEASES = "tests.processors.releases"


def compare(folder: Path, processors: list[str], names: list[str]) -> int:
    """Make the releases below a folder, and print what differs; return how many places do."""
    found = 0
    for processor in ("native", *processors):
        output_of(processor, RELEASES, [str(folder / processor), *names])
        for each in differences(folder / "native" / "made", folder / processor / "made"):
            print(f"{processor}: {each}", flush=True)
            found += 1
    return found


def main() -> int:
    """Run the command; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    others = [name for name in PROCESSORS if name != "native"]
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--on", nargs="+", choices=others, default=others, metavar="PROCESSOR")
    parser.add_argument("--into", type=Path, help="keep what is made in this folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = compare(chosen.into or Path(temporary), chosen.on, chosen.names)
    print(f"{found} places differ")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
