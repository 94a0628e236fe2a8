"""Errors of sketches and of sparse trees on Zipf's law, beside predictions, and what they take.

    python -m benchmarks.sketches FOLDER [--rows N] [--values D] [--memory "64 MiB" ...]
    python -m benchmarks.sketches FOLDER --messages

writes rows whose value k has a share of log(1 + 1/k) / log(values + 1) to Parquet files in FOLDER,
once, and makes releases of them by the command, of one budget: a sketch for each size, and a sparse
tree. It prints a line for each: seconds and peak memory of the command, bytes of the release,
predicted standard error and e n / width, and over two sets of values the mean absolute error, the
root mean square error and the largest, in rows: the heaviest thousand, and a hundred thousand of
evenly spaced ranks. A value that a sparse tree does not publish is taken as 0 rows. ``--messages``
prints how many bytes a bundle sends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import dptrees
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketched.workload import SketchWorkload
from dptrees.dpcore.sketches.sketch import SketchKind

FILE_ROWS = 10**7
PRIVACY = {"epsilon": 1, "neighbors": "add_remove"}


def drawn(random: np.random.Generator, rows: int, values: int) -> np.ndarray:
    """Draw values from 1 on."""
    return np.exp(random.random(rows) * np.log(values + 1)).astype(np.int64)


def write_rows(folder: Path, rows: int, values: int) -> np.ndarray:
    """Write the files that are not there; return the exact counts by value."""
    counts, random = np.zeros(values + 2, np.int64), np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, rows, FILE_ROWS):
        own = drawn(random, min(FILE_ROWS, rows - start), values)
        counts += np.bincount(own, minlength=len(counts))
        path = folder / f"{start:012d}.parquet"
        if not path.exists():
            pq.write_table(pa.table({"value": own.astype(np.int32)}), path, compression="zstd")
    return counts


def released(folder: Path, name: str, tree: dict[str, Any], privacy: dict[str, Any]) -> Any:
    """Make a release by the command; return it with seconds and peak MiB."""
    config = {
        "release": name,
        "input": {"format": "parquet", "path": str(folder / "rows" / "*.parquet")},
        "output": str(folder / name),
        "key_file": str(folder / "release.key"),
        "privacy": privacy,
        "trees": [{"name": "t", **tree}],
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "dptrees", "release", str(path)]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} failed")
    return dptrees.open(config["output"])["t"], time.monotonic() - start, usage.ru_maxrss // 1024


def line(folder: Path, name: str, estimates: Any, exact: np.ndarray, made: Any, theory: str) -> str:
    """One line of the table."""
    _, seconds, memory = made
    size = sum(path.stat().st_size for path in (folder / name).rglob("*.parquet")) / 2**20
    errors = np.abs(estimates - exact)
    sets = (errors[:1000], errors[1000:])
    figures = " | ".join(
        f"{each.mean():8.1f} {np.sqrt((each**2).mean()):8.1f} {each.max():8.0f}" for each in sets
    )
    return f"{name:12} {seconds:7.0f} {memory:8,} {size:9.1f} {theory:>9} {figures}"


def compare(folder: Path, rows: int, values: int, memories: list[str]) -> None:
    """Make all releases, and print the table."""
    counts = write_rows(folder / "rows", rows, values)
    key = folder / "release.key"
    if not key.exists():
        subprocess.run([sys.executable, "-m", "dptrees", "keygen", str(key)], check=True)
    asked = np.concatenate([np.arange(1, 1001), np.linspace(1001, values, 100_000).astype(int)])
    exact = counts[asked]
    print(
        "release, seconds, MiB, its MiB, predicted, e n / w; heaviest: mean, rms, largest | others"
    )
    for memory in memories:
        tree = {"domain": {"kind": "sketch", "column": "value", "type": "integer"}}
        tree |= {"rows": rows, "values": values, "memory": memory}
        name = "sketch-" + memory.replace(" ", "")
        made = released(folder, name, tree, PRIVACY)
        found = np.array(made[0].count(asked)["estimate"])
        manifest = json.loads((folder / name / "manifest.json").read_text())
        shape = manifest["spec"]["trees"][0]["shape"]
        question = SketchWorkload(
            name="t",
            domain=SketchDomain(column="value", type="integer"),
            rows=rows,
            values=values,
            width=shape["width"],
            hashes=shape["rows"],
            type=SketchKind(shape["kind"]),
        )
        one = Budget(measure=Measure.EPSILON, amount=1)  # type: ignore[arg-type]
        planned = question.planned(Setting(unit=ADD_REMOVE_ROW, budget=one))
        theory = f"{question.predicted(planned):.1f} {np.e * rows / shape['width']:9.1f}"
        print(line(folder, name, found, exact, made, theory), shape, flush=True)
    made = released(
        folder,
        "sparse",
        {"domain": {"kind": "sparse", "column": "value"}},
        PRIVACY | {"delta": 1e-8},
    )
    nodes = made[0].nodes(level="value").table
    published = dict(zip(nodes["label"].to_pylist(), nodes["estimate"].to_pylist(), strict=True))
    found = np.array([published.get(str(value), 0.0) for value in asked.tolist()])
    print(line(folder, "sparse", found, exact, made, "-"), f"{len(published):,} published")


def messages(values: int) -> None:
    """Print the bytes that a bundle sends, added up in a table, and as codes."""
    one = Budget(measure=Measure.EPSILON, amount=1)  # type: ignore[arg-type]
    choices = KeyedChoices(key=ReleaseKey(bytes(32)), release="r")
    for width, rows in product((2**14, 2**18, 2**22), (10**4, 10**6)):
        workload = SketchWorkload(
            name="t",
            domain=SketchDomain(column="v", type="integer"),
            width=width,
            hashes=5,
            type=SketchKind.COUNT_MIN,
        )
        question = workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=one))
        columns = {"v": pa.array(drawn(np.random.default_rng(rows), rows, values))}
        sizes = []
        for dense in (True, False):
            counter = question.counter(dense=dense, choices=choices)
            counter.add(question.with_choices(choices).increments(columns), rows)
            sizes.append(sum(len(each.data) for each in counter.take()))
        print(f"5 x {width:9,} {rows:11,} rows {sizes[0]:12,} {sizes[1]:12,} {8 * rows:12,}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sketches")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--values", type=int, default=10**7)
    parser.add_argument("--memory", nargs="+", default=["1 MiB", "16 MiB", "256 MiB", "1 GiB"])
    parser.add_argument("--messages", action="store_true")
    chosen = parser.parse_args()
    if chosen.messages:
        messages(chosen.values)
    else:
        compare(chosen.folder, chosen.rows, chosen.values, chosen.memory)


if __name__ == "__main__":
    main()
