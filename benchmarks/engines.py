"""One release of many rows on every engine of this machine, side by side in one run.

Run as ``python benchmarks/engines.py [--rows 40000000] [--write docs/engines.md]`` after ``make
engines``. The release has a tree of 1,024 cells and one of 2^20 (chunks and a spine). ``start-up``
is the same release of 1,000 rows on the same engine, already running; memory is the largest
sum, over the launcher, the engine and its workers, of what they hold at once.
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

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests.engines.servers import Engine, engine, environment, missing  # noqa: E402

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
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> int:
    """Print the table, and write it between the marks of a page where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = list(_table(Path(folder), arguments.rows))
    if arguments.write:
        page = arguments.write.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        text = "\n".join(["", "```", *lines, "```", ""])
        arguments.write.write_text(before + BEGIN + text + END + after)
    return 0


def _table(folder: Path, rows: int) -> Iterator[str]:
    """The lines of the table, each printed as soon as it is known."""
    subprocess.run(
        [sys.executable, "-m", "pipelines.command", "keygen", f"{folder}/release.key"],
        check=True,
        capture_output=True,
        cwd=PROJECT,
    )
    for count in (1_000, rows):
        maker = [sys.executable, str(PROJECT / "benchmarks" / "make_rows.py")]
        subprocess.run([*maker, f"{folder}/{count}", "--rows", str(count)], check=True)
    titles = f"{'start-up s':>10} {'whole s':>8} {'M rows/s':>9} {'to local':>8} {'MB':>6}"
    heading = f"{'engine':<14} {titles}"
    print(heading)
    yield heading
    local = 0.0
    for name in NAMES:
        if reason := missing(name):
            line = f"{name:<14} {reason}"
        else:
            startup, whole, peak = _measured(folder, name, rows)
            local = local or whole
            line = (
                f"{name:<14} {startup:>10.1f} {whole:>8.1f} {rows / whole / 1e6:>9.1f} "
                f"{whole / local:>8.1f} {peak:>6.0f}"
            )
        print(line, flush=True)
        yield line


def _measured(folder: Path, name: str, rows: int) -> tuple[float, float, float]:
    """(start-up s, whole s, peak MB) of an engine, the better of two runs each."""
    below = folder / name
    below.mkdir()
    with engine(name, below) as running:
        startup, whole = (
            min(_release(folder, running, count, run) for run in range(2))
            for count in (1_000, rows)
        )
    return startup[0], whole[0], whole[1]


def _release(folder: Path, running: Engine, rows: int, run: int) -> tuple[float, float]:
    """(seconds, peak MB) of one release by the command."""
    name = f"{running.name}-{rows}-{run}"
    config = folder / f"{name}.yaml"
    config.write_text(
        CONFIG.format(rows=folder / str(rows), output=folder / f"out-{name}", folder=folder)
    )
    command = [sys.executable, "-m", "pipelines.command", "release", str(config), *running.options]
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
