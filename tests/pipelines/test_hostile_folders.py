"""Folders that were damaged or edited: every command that reads a release, and Python, end in the
right answer or in one sentence, never in another exception.

Every file is damaged in many ways. In half of the cases the checksums are computed again, as
somebody would who edits a release on purpose.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.release.manifest import CHECKSUM, manifest_checksum
from tests.pipelines.conftest import Workspace

Damage = Callable[[Path, random.Random], None]
OTHERS: list[Any] = [None, True, -1, 0, 10**30, 1e308, float("nan"), "", "x/../y", [], {}]
OTHERS += [[[]], {"a": 1}]
DEPTH = 100_000


# --- bytes ---


def truncate(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 20])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(data))


def remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def swap(path: Path, draw: random.Random) -> None:
    others = sorted(each for each in path.parent.rglob("*.*") if each.is_file() and each != path)
    shutil.copy(draw.choice(others), path)


BYTES = [truncate, flip, remove, folder, swap]

# --- JSON ---


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values within one."""
    named = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in named:
        yield (*here, name)
        if isinstance(each, (dict, list)):
            yield from places(each, (*here, name))


def parent(entries: Any, place: tuple[Any, ...]) -> Any:
    for name in place[:-1]:
        entries = entries[name]
    return entries


def change_json(path: Path, change: Callable[[Any, Any], None], draw: random.Random) -> None:
    entries = json.loads(path.read_bytes())
    place = draw.choice(list(places(entries)))
    change(parent(entries, place), place[-1])
    path.write_text(json.dumps(entries))


def drop_key(path: Path, draw: random.Random) -> None:
    change_json(path, lambda inside, name: inside.pop(name), draw)


def change_type(path: Path, draw: random.Random) -> None:
    change_json(path, lambda inside, name: inside.__setitem__(name, draw.choice(OTHERS)), draw)


def huge_number(path: Path, draw: random.Random) -> None:
    entries = json.loads(path.read_bytes())
    numbers = [p for p in places(entries) if type(parent(entries, p)[p[-1]]) in (int, float)]
    if numbers:
        place = draw.choice(numbers)
        parent(entries, place)[place[-1]] = draw.choice([10**9, 10**18, 2**63, -(10**40), 1e300])
    path.write_text(json.dumps(entries))


def deep(path: Path, draw: random.Random) -> None:
    entries = json.loads(path.read_bytes())
    place = draw.choice(list(places(entries)))
    parent(entries, place)[place[-1]] = "DEEP"
    depth = draw.choice([900, DEPTH])
    path.write_text(json.dumps(entries).replace('"DEEP"', "[" * depth + "]" * depth))


def no_object(path: Path, draw: random.Random) -> None:
    path.write_text(draw.choice(["[]", "1", "null", "", "[" * DEPTH, "1" * 5000, "\ufeff{}"]))


JSON = [drop_key, change_type, huge_number, deep, no_object]

# --- tables ---


def change_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def drop_column(path: Path, draw: random.Random) -> None:
    change_table(path, lambda table: table.drop_columns(draw.choice(table.column_names)))


def column(path: Path, draw: random.Random) -> None:
    def change(table: pa.Table) -> pa.Table:
        at, rows = draw.randrange(table.num_columns), table.num_rows
        values = draw.choice(
            [
                pa.nulls(rows, table.schema.field(at).type),
                pa.nulls(rows),
                pa.array(["x"] * rows),
                pa.array([2**62] * rows),
                pa.array([float("nan")] * rows),
                pa.array([-1] * rows, pa.int32()),
                pa.array([[1]] * rows),
            ]
        )
        return table.set_column(at, table.column_names[at], values)

    change_table(path, change)


def rows(path: Path, draw: random.Random) -> None:
    change_table(
        path,
        draw.choice(
            [lambda t: t.slice(1), lambda t: t.slice(0, 0), lambda t: pa.concat_tables([t, t])]
        ),
    )


TABLES = [drop_column, column, rows]


def reseal(release: Path) -> None:
    """Compute all checksums again, where the manifest still has a place for them."""
    path = release / "manifest.json"
    try:
        entries = json.loads(path.read_bytes())
        for part in entries["parts"]:
            file = release / part["file"]
            part["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
            name = f"{part['file'].rsplit('-', 1)[0]}-{part['sha256'][:16]}.parquet"
            file.rename(release / name)
            part["file"] = name
            part["rows"] = pq.ParquetFile(release / name).metadata.num_rows
        for name in entries["files"]:
            entries["files"][name] = hashlib.sha256((release / name).read_bytes()).hexdigest()
    except Exception:  # what is damaged stays so
        pass
    try:
        entries[CHECKSUM] = manifest_checksum(entries)
        path.write_text(json.dumps(entries))
    except Exception:
        pass


# Draws with bit 1 compute checksums again; odd ones damage the manifest, of all JSON.
SEEDS = {"json": (0, 3), "parquet": (0, 2)}
DAMAGES = {"json": [*BYTES, *JSON], "parquet": [*BYTES, *TABLES]}
CASES = [
    (kind, damage, seed)
    for kind, damages in DAMAGES.items()
    for damage in damages
    for seed in SEEDS[kind]
]


def commands(release: Path) -> list[tuple[object, ...]]:
    return [
        ("query", release, "cdf", "50", "--tree", "all"),
        ("query", release, "quantile", "0.5", "--tree", "places", "--key", "north"),
        ("query", release, "range", "10", "40", "--tree", "all", "--json"),
        ("query", release, "total", "--tree", "places", "--key", "all"),
        ("sample", release, "-n", "5", "--tree", "all", "--output", release.parent / "drawn.csv"),
        ("report", release),
        ("verify", release),
    ]


def in_python(release: Path) -> None:
    try:
        opened = dptrees.open(release)
        for name in opened.trees:
            tree = opened[name]
            repr(tree)
            tree.nodes()
            tree.cdf() if name == "all" else tree.quantiles(key="north")
        opened.verify()
    except dptrees.Error:
        pass


@pytest.mark.parametrize(
    ("kind", "damage", "seed"), CASES, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_a_damaged_folder_ends_in_a_sentence(
    released: Workspace, tmp_path: Path, kind: str, damage: Damage, seed: int
) -> None:
    draw = random.Random(f"{kind} {damage.__name__} {seed}")
    release = tmp_path / "release"
    shutil.copytree(released.output, release)
    files = sorted(path for path in release.rglob(f"*.{kind}"))
    damage(release / "manifest.json" if kind == "json" and seed % 2 else draw.choice(files), draw)
    if seed & 2:
        reseal(release)
    for command in commands(release):
        outcome = released.run(*command)
        assert outcome.code in (0, 2), (command, outcome)
        assert outcome.code == 0 or outcome.err.count("\n") == 1, (command, outcome.err)
    in_python(release)
