"""One release of many rows on every engine of this machine, side by side in one run.

Run as ``python -m benchmarks.engines [--rows 40000000] [--times 10] [--write docs/engines.md]``
after ``make engines``. The release has a tree of 1,024 cells and one of 2^20 (chunks and a spine).
``start-up`` is the same release of 1,000 rows on the same engine, already running; ``many`` reads
the same files ``--times`` times over, under other names, so that rows outweigh what start-ups
differ by. Memory is the largest sum, over the launcher, the engine and its workers, of what they
hold at once.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import make_key, show_page
from benchmarks.throughput import write_ordered
from tests.engines.servers import Engine, engine, environment, missing

NAMES = ("local", "prism", "flink", "flink_cluster", "spark")
CONFIG = """
release: engines
input: {{format: parquet, path: {rows}/*.parquet}}
output: {output}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: fine
    domain: {{kind: ordered, column: value, lower: 0, upper: 1024, cells: 1048576}}
  - name: coarse
    domain: {{kind: ordered, column: value, lower: 0, upper: 1024, cells: 1024}}
    objective: quantiles
"""


def main() -> int:
    """Print the table, and write it between the marks of a page where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--engines", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _make_inputs(Path(folder), arguments.rows, arguments.times)
        lines = list(_table(Path(folder), arguments.engines, arguments.rows, arguments.times))
    if arguments.write:
        show_page("\n".join(["```", *lines, "```", ""]), arguments.write)
    return 0


def _make_inputs(folder: Path, rows: int, times: int) -> None:
    """A key, and the three inputs: ``few``, ``once`` and ``many``, which links to the files of
    ``once`` so often."""
    make_key(folder)
    for name, count in (("few", 1_000), ("once", rows)):
        write_ordered(folder / name, count)
    (folder / "many").mkdir()
    for path in (folder / "once").iterdir():
        for number in range(times):
            (folder / "many" / f"{number}-{path.name}").hardlink_to(path)


def _table(folder: Path, names: tuple[str, ...], rows: int, times: int) -> Iterator[str]:
    """The lines of the table, each printed as soon as it is known."""
    heading = (
        f"{'':<14} {'1,000 rows':>10} {f'{rows / 1e6:.0f}M rows':>17} "
        f"{f'{rows * times / 1e6:.0f}M rows':>17} {'beyond start-up':>22}\n"
        f"{'engine':<14} {'s':>10} {'s':>8} {'to local':>8} {'s':>8} {'to local':>8} "
        f"{'M rows/s':>9} {'to local':>8} {'MB':>6}"
    )
    print(heading)
    yield heading
    local: tuple[float, float, float] | None = None
    for name in names:
        if reason := missing(name):
            line = f"{name:<14} {reason}"
        else:
            few, once, many, peak = _measured(folder, name)
            local = local or (once, many, many - few)
            line = (
                f"{name:<14} {few:>10.1f} {once:>8.1f} {once / local[0]:>8.1f} "
                f"{many:>8.1f} {many / local[1]:>8.1f} "
                f"{rows * times / (many - few) / 1e6:>9.1f} {(many - few) / local[2]:>8.1f} "
                f"{peak:>6.0f}"
            )
        print(line, flush=True)
        yield line


def _measured(folder: Path, name: str) -> tuple[float, float, float, float]:
    """(s of few, s of once, s of many, peak MB) of an engine, the better of two runs each."""
    below = folder / name
    below.mkdir()
    with engine(name, below) as running:
        few, once, many = (
            min(_release(folder, running, each, run) for run in range(2))
            for each in ("few", "once", "many")
        )
    return few[0], once[0], many[0], many[1]


def _release(folder: Path, running: Engine, rows: str, run: int) -> tuple[float, float]:
    """(seconds, peak MB) of one release by the command."""
    name = f"{running.name}-{rows}-{run}"
    config = folder / f"{name}.yaml"
    config.write_text(
        CONFIG.format(rows=folder / rows, output=folder / f"out-{name}", folder=folder)
    )
    command = [sys.executable, "-m", "dptrees", "release", str(config), *running.options]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment(running.servers.folder),
        start_new_session=True,
    )
    groups = {process.pid, *(server.pid for server in running.servers.running.values())}
    peak = _Peak(groups)
    peak.start()
    code = process.wait()
    seconds = time.perf_counter() - start
    peak.over.set()
    peak.join()
    if code:
        raise SystemExit(f"the release on {running.name} ended with {code}")
    return seconds, peak.megabytes


class _Peak(threading.Thread):
    """Watches the memory that some process groups hold together."""

    def __init__(self, groups: set[int]) -> None:
        super().__init__(daemon=True)
        self._groups, self.over, self.megabytes = groups, threading.Event(), 0.0

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.megabytes = max(self.megabytes, sum(map(_resident, self._members())))

    def _members(self) -> Iterator[Path]:
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                try:
                    fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[2]) in self._groups:
                    yield path


def _resident(path: Path) -> float:
    """The MB that a process holds."""
    try:
        pages = int((path / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096 / 2**20


if __name__ == "__main__":
    sys.exit(main())
