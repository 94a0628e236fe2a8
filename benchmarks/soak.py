"""Releases one after the other on a Flink cluster whose workers are killed: what is lost or stays.

    python -m benchmarks.soak [--releases 200] [--minutes 60] [--write docs/engines.md]

A job manager, two task managers with a worker pool each and a job server of this machine
(`deploy.cluster`) make the same release again and again, each into a folder of its own with the
same nonce, so that each must have the bytes that this machine's own runner makes. During every
third release a task manager is killed with its pool at a random moment, and started again. After
every release the memory, processes and open files of the cluster are read, and the files that
launchers and cluster have left. Ends with the number of releases whose bytes differ (lost or
repeated rows would change them), and with the medians of the first and the last releases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import write_marked
from deploy.cluster.flink import FlinkCluster
from deploy.cluster.processes import PROJECT, Ports, Servers, overview

ROWS, FILES = 2_000_000, 8
NONCE = "ab" * 16
KILLED_EVERY = 3
COMPARED = 8
# A job that starts again after a lost worker has taken less than a minute.
MOST_SECONDS = 600.0
CONFIG = """
release: soak
input: {{format: parquet, path: {folder}/rows/*.parquet}}
output: {output}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: person, max_rows: 4}}
trees:
  - {{name: wide, domain: {{column: value, lower: 0, upper: 1, cells: 300000}}}}
  - {{name: places, domain: {{column: place, type: integer, lower: 0, upper: 1000}}}}
"""


@dataclass(frozen=True, kw_only=True)
class State:
    """The cluster after a release.

    Attributes:
        java_mb, python_mb: resident memory of all processes of each kind, in MB.
        processes, files: how many there are, and how many files they have open.
        left: files and folders below the temporary folders of cluster and launchers.
        orphans: folders of task managers that were killed, which nobody deletes; `left` is without
            what is in them.
    """

    java_mb: float
    python_mb: float
    processes: float
    files: float
    left: float
    orphans: float


def read_state(cluster: FlinkCluster) -> State:
    """Read the state of a cluster."""
    servers = cluster.servers
    java = python = processes = files = 0
    groups = {each.pid for each in servers.running.values()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) not in groups:
                continue
            pages = int((entry / "statm").read_text().split()[1])
            name = (entry / "comm").read_text().strip()
            files += len(list((entry / "fd").iterdir()))
        except OSError:
            continue  # it has just ended
        size = pages * os.sysconf("SC_PAGE_SIZE")
        processes += 1
        if name == "java":
            java += size
        else:
            python += size
    listed = overview(cluster.ports.page, "taskmanagers").get("taskmanagers", ())
    known = {f"tm_{each['id']}" for each in listed}
    orphans = {path for path in (servers.folder / "tmp").glob("tm_*") if path.name not in known}
    left = sum(
        orphans.isdisjoint([path, *path.parents])
        for name in ("tmp", "artifacts")
        for path in (servers.folder / name).rglob("*")
    )
    return State(
        java_mb=java / 2**20,
        python_mb=python / 2**20,
        processes=processes,
        files=files,
        left=left,
        orphans=len(orphans),
    )


def make_rows(folder: Path) -> None:
    """Write the rows and a key."""
    generator = np.random.default_rng(5)
    (folder / "rows").mkdir()
    for number in range(FILES):
        size = ROWS // FILES
        table = pa.table(
            {
                "value": generator.random(size),
                "place": generator.integers(0, 1000, size),
                "person": generator.integers(0, ROWS // 10, size),
            }
        )
        pq.write_table(table, folder / "rows" / f"{number}.parquet", row_group_size=2**16)


def command(folder: Path, name: str, *options: str) -> list[str]:
    """The command of a release into a folder of its own."""
    path = folder / f"{name}.yaml"
    path.write_text(CONFIG.format(folder=folder, output=folder / name))
    words = ["release", str(path), f"--nonce={NONCE}", *options]
    return [sys.executable, "-m", "dptrees", *words]


def files_of_release(folder: Path) -> dict[str, bytes]:
    """All files of a release but its page, the note of its run and the sealed list of its input."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "report.html" and not path.name.startswith(".")
    }


@dataclass
class Soak:
    """The releases so far.

    Attributes:
        made, killed: releases, and those during which a worker was killed.
        again: releases whose command failed, and was given a second time.
        other: releases with other bytes than they must have.
    """

    folder: Path
    cluster: FlinkCluster
    environment: Mapping[str, str]
    wanted: Mapping[str, bytes]
    made: int = 0
    killed: int = 0
    again: int = 0
    other: int = 0

    def release(self, moment: random.Random) -> None:
        """Make a release, and compare it."""
        name = f"out-{self.made}"
        options = (*self.cluster.options(), "--parallelism=2", "--no_preflight")
        begun = time.monotonic()
        process = self._start(name, *options)
        if self.made % KILLED_EVERY == KILLED_EVERY - 1:
            time.sleep(moment.uniform(2.0, 8.0))
            worker = moment.randrange(2)
            self.cluster.kill_worker(worker)
            self.cluster.start_worker(worker)
            self.killed += 1
        code = process.wait(timeout=MOST_SECONDS)
        if code != 0:
            self.again += 1
            code = self._start(name, *options).wait(timeout=MOST_SECONDS)
        made = files_of_release(self.folder / name) if code == 0 else {}
        self.other += made != self.wanted
        self.made += 1
        print(f"{self.made} {code} {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
        if made == self.wanted:
            subprocess.run(["rm", "-rf", str(self.folder / name)], check=True)

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "launcher.log").open("ab") as log:
            return subprocess.Popen(
                command(self.folder, name, *options),
                stdout=log,
                stderr=log,
                cwd=PROJECT,
                env=self.environment,
            )


def lines(soak: Soak, states: list[State], minutes: float) -> list[str]:
    """The outcome, in Markdown."""
    first, last = states[:COMPARED], states[-COMPARED:]

    def median(of: list[State], name: str) -> str:
        return f"{statistics.median(asdict(each)[name] for each in of):,.0f}"

    return [
        f"{soak.made} releases in {minutes:.0f} minutes, a worker killed in {soak.killed} of them; "
        f"{soak.again} commands failed and were given again; {soak.other} releases have other "
        "bytes than they must have.",
        "",
        f"| medians of {len(first)} releases | the first | the last |",
        "|---|---:|---:|",
        *(
            f"| {each.name.replace('_', ' ')} | {median(first, each.name)} | "
            f"{median(last, each.name)} |"
            for each in fields(State)
        ),
    ]


def run(folder: Path, releases: int, minutes: float) -> list[str]:
    """Make releases until there are so many, or time is over."""
    (folder / "tmp").mkdir()
    make_rows(folder)
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(PROJECT),
        "TMPDIR": str(folder / "tmp"),
    }
    run_here = [sys.executable, "-m", "dptrees", "keygen", str(folder / "release.key")]
    subprocess.run(run_here, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command(folder, "wanted"), cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    servers = Servers(folder, environment)
    cluster = FlinkCluster(servers=servers, ports=Ports.free(), workers=2)
    states: list[State] = []
    try:
        cluster.start(cluster__evenly_spread_out_slots=True)
        wanted = files_of_release(folder / "wanted")
        soak = Soak(folder=folder, cluster=cluster, environment=environment, wanted=wanted)
        moment, begun = random.Random(1), time.monotonic()
        while soak.made < releases and time.monotonic() - begun < 60 * minutes:
            soak.release(moment)
            states.append(read_state(cluster))
            with (folder / "states.jsonl").open("a") as kept:
                kept.write(json.dumps(asdict(states[-1])) + "\n")
        return lines(soak, states, (time.monotonic() - begun) / 60)
    finally:
        servers.stop()


def main() -> int:
    """Print the outcome, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="kept, to look at; else a temporary one")
    parser.add_argument("--write", type=Path, help="into this page, between its marks")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True)
        made = run(chosen.folder.resolve(), chosen.releases, chosen.minutes)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = run(Path(folder), chosen.releases, chosen.minutes)
    print("\n".join(made))
    if chosen.write is not None:
        write_marked(chosen.write, "soak", made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
