"""Plans and releases of every kind, written into a folder.

    python -m tests.processors.releases FOLDER [NAME ...]

NAME is one of `NAMES`. Rows, key and nonce are fixed, so the same code writes the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from dptrees.pipelines.cli.command import main
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.report.summary import write_report
from tests.golden import configurations as golden
from tests.processors import extra
from tests.releases.make import CONFIGURATIONS as OLD
from tests.releases.make import write_place
from tests.transforms.eager import release_table
from tests.transforms.every_kind import PLANS, ROWS, tables_in_memory

SECRET_KEY = bytes(range(7, 39))
PLAN = "plan.json"


def _write_plan(folder: Path, spec: dict[str, object], digest: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(spec | {"digest": digest.hex()}, indent=1, sort_keys=True)
    (folder / PLAN).write_text(text + "\n")


def _golden(name: str, folder: Path) -> None:
    """Write the plan and, by the steps of the job, the release of a golden configuration."""
    _by_steps(golden.write_configuration(Path(), name), folder)


def _extra(name: str, folder: Path) -> None:
    """Write the plan and the release of a configuration of `extra`."""
    _by_steps(extra.write_configuration(Path(), name), folder)


def _by_steps(path: Path, folder: Path) -> None:
    configuration = load_configuration(str(path))
    plan = configuration.plan()
    _write_plan(folder, plan.spec(), plan.digest)
    rows = pq.read_table("rows.parquet")
    output = folder / "release"
    release_table(plan, rows, configuration.key.checked(), str(output), bytes.fromhex(golden.NONCE))
    with contextlib.redirect_stdout(io.StringIO()):
        write_report(str(output))


def _in_memory(name: str, folder: Path) -> None:
    """Write the plan and the tables of a release in memory of `tests.transforms.every_kind`."""
    from dptrees.dpcore.noise.randomness import ReleaseKey

    plan = PLANS[name]()
    _write_plan(folder, plan.spec(), plan.digest)
    for path, data in tables_in_memory(plan, ReleaseKey(SECRET_KEY), ROWS).items():
        file = folder / "release" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def _by_command(name: str, folder: Path) -> None:
    """Write releases that the command makes: private keys, privacy units, runs of a series."""
    _, settings, runs, _ = OLD[name]
    place = Path(f"place-{name}")
    place.mkdir(exist_ok=True)
    write_place(place, {key: value for key, value in settings.items() if key != "ledger"})
    here = Path.cwd()
    os.chdir(place)
    try:
        for run in runs:
            given = ["--set", f"date={run}"] if run else []
            with contextlib.redirect_stdout(io.StringIO()):
                code = main(["release", "release.yaml", "--nonce", golden.NONCE, *given])
            if code:
                raise SystemExit(f"{name}: the command ends with {code}")
    finally:
        os.chdir(here)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.move(place / "out", folder / "release")


# By name: what makes it, in the working directory, which holds the data.
_MAKERS: dict[str, Callable[[Path], None]] = {
    **{f"golden/{each}": lambda at, each=each: _golden(each, at) for each in golden.NAMES},
    **{f"extra/{each}": lambda at, each=each: _extra(each, at) for each in extra.TREES},
    **{f"kind/{each}": lambda at, each=each: _in_memory(each, at) for each in PLANS},
    **{
        f"command/{each}": lambda at, each=each: _by_command(each, at)
        for each in ("format-3-units", "format-3-series", "format-3-of-issue-16")
    },
}
NAMES = tuple(_MAKERS)


def make(folder: Path, names: tuple[str, ...] = NAMES) -> Iterator[tuple[str, float]]:
    """Make releases below a folder; yield the name of each and its seconds."""
    work = folder.resolve()
    work.mkdir(parents=True, exist_ok=True)
    (work / "data").mkdir(exist_ok=True)
    os.chdir(work / "data")
    golden.write_data(Path())
    for name in names:
        begun = time.process_time()
        _MAKERS[name](work / "made" / name)
        yield name, time.process_time() - begun


if __name__ == "__main__":
    for made, seconds in make(Path(sys.argv[1]), tuple(sys.argv[2:]) or NAMES):
        print(f"{made} {seconds:.2f}", flush=True)
