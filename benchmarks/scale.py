"""A whole release of a generated country: time and memory of a hundredth, a tenth and all of it.

    python -m benchmarks.scale [FOLDER] [--fractions 0.01 0.1 1]

The data (`benchmarks/make_country.py`) is made in the folder and kept there for the next time;
without a folder it is made anew and removed. The command `dptrees release` runs in a process of its
own: its seconds from start to end, the seconds of processor time of all its threads, and its peak
memory. The files were just written or read, so they come from the system's cache.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import make_country
from benchmarks.harness import PROJECT, Run, make_key, run_command

CONFIG = """
release: country
input: {{format: parquet, path: {folder}/rows/part-*.parquet}}
output: {folder}/out
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: blocks
    domain:
      kind: hierarchy
      column: block
      digits: {digits}
      levels: [{levels}]
      table: {folder}/blocks.parquet
"""


def make_data(folder: Path, fraction: float) -> None:
    """Make the rows, the universe and a key, unless they are there."""
    if not (folder / "blocks.parquet").exists():
        command = [sys.executable, "-m", "benchmarks.make_country", str(folder)]
        command += ["--fraction", str(fraction)]
        subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    if not (folder / "release.key").exists():
        make_key(folder)


def measured(folder: Path, fraction: float) -> Run:
    """Release a fraction of the country into an output that does not exist, and remove it."""
    make_data(folder, fraction)
    levels = ", ".join(level.replace(" ", "_") for level in make_country.LEVELS)
    digits = list(make_country.level_digits(fraction))
    config = folder / "release.yaml"
    config.write_text(CONFIG.format(folder=folder, digits=digits, levels=levels))
    shutil.rmtree(folder / "out", ignore_errors=True)
    try:
        return run_command(["release", str(config)])
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


def compare(folder: Path, fractions: Sequence[float]) -> None:
    """Print the table."""
    print(f"{'rows':>12} {'leaves':>10} {'s':>8} {'CPU s':>8} {'MB':>7}")
    for fraction in fractions:
        run = measured(folder / f"country-{fraction:g}", fraction)
        rows, leaves = make_country.row_count(fraction), make_country.level_sizes(fraction)[-1]
        print(
            f"{rows:>12,} {leaves:>10,} {run.seconds:>8.1f} {run.processor:>8.1f} {run.peak:>7.0f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    part = make_country.parse_fraction
    parser.add_argument("--fractions", type=part, nargs="+", default=[0.01, 0.1, 1.0])
    chosen = parser.parse_args(arguments)
    if chosen.folder:
        compare(chosen.folder.resolve(), chosen.fractions)
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), chosen.fractions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
