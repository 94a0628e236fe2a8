"""A release that is killed on one processor, finished and recognized on others.

    python -m tests.processors.finishing STEP=FOLDER ...

runs steps in the given order, each in a folder that `write_place` made: ``make`` and ``finish`` run
the command that makes the release, ``recognise`` runs it again, ``verify`` makes the release again
from its rows and compares, and ``kill``, the last one, ends the process when all parts are written,
before the manifest. It prints what each command ends with.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.transforms.steps import record

KILLED = 77
NONCE = bytes(range(16)).hex()
OUTPUT = "out"
_DOMAIN = {"column": "minutes", "type": "integer", "lower": 0, "upper": 40, "out_of_range": "clamp"}
_DOMAIN |= {"missing": "first"}
_BY = {"column": "carrier", "keys": ["UA", "AA"]}
# Plans that differed between processors while they were made by LAPACK and the C library.
SETTINGS: dict[str, Any] = {
    "release": "finishing",
    "input": {"format": "parquet", "path": "rows.parquet"},
    "output": OUTPUT,
    "key_file": "release.key",
    "privacy": {"rho": 0.1, "neighbors": "add_remove"},
    "trees": [
        {"name": "weighted", "domain": _DOMAIN, "mechanism": "factorised", "group_by": _BY},
        {"name": "counted", "domain": _DOMAIN, "optimize_for": "counts", "guess": {"rows": 2000}},
    ],
}


def write_place(folder: Path) -> None:
    """Write rows, key and configuration of a release into a new folder."""
    folder.mkdir()
    random = np.random.default_rng(20261123)
    minutes = pa.array(random.integers(0, 60, 2000))
    carriers = pa.array(random.choice(["UA", "AA", "DL"], 2000))
    pq.write_table(pa.table({"minutes": minutes, "carrier": carriers}), folder / "rows.parquet")
    key = folder / "release.key"
    key.write_text(ReleaseKey(bytes(range(32))).to_text() + "\n")
    key.chmod(0o600)
    (folder / "release.yaml").write_text(yaml.safe_dump(SETTINGS))


def _end(*_: object, **__: object) -> NoReturn:
    os._exit(KILLED)


def run(step: str, folder: str) -> dict[str, object]:
    """Run a step; return its exit code and what it printed."""
    release = ["release", "release.yaml", "--nonce", NONCE]
    commands = {"verify": ["verify", OUTPUT, "--data", "release.yaml"]}
    if step == "kill":
        # What a commit begins with, in whatever thread of this process.
        record.check_once = _end
    out, err = io.StringIO(), io.StringIO()
    os.chdir(folder)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(commands.get(step, release))
    return {"step": step, "code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(json.dumps(run(*argument.split("=", 1))), flush=True)
