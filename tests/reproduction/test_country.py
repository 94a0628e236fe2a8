"""The generated country of benchmarks/make_country.py, and the watch of benchmarks/scale.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import make_country as country
from benchmarks import scale
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.transforms.steps import counting

TINY = 0.001


# --- the country ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tiny country, its rows in four files."""
    path = tmp_path_factory.mktemp("country")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(country, "ROWS_PER_FILE", 100_000)
        country.write_country(path, TINY)
    yield path


def read_codes(path: Path) -> country.Integers:
    """The codes in a file."""
    table = pq.read_table(path)
    assert table.schema.equals(country.SCHEMA)
    codes: country.Integers = table[country.COLUMN].to_numpy()
    return codes


def read_files(folder: Path) -> list[country.Integers]:
    """The codes in each file of rows."""
    return [read_codes(path) for path in sorted((folder / "rows").glob("part-*.parquet"))]


@pytest.mark.parametrize("fraction", [TINY, 0.01])
def test_the_universe_has_its_levels(fraction: float) -> None:
    codes = pa.array(country.block_codes(fraction))
    universe = universe_from_codes(codes, country.DIGITS, levels=country.LEVELS)
    assert universe.level_sizes == (1, *country.level_sizes(fraction))


def test_the_whole_country_is_like_the_united_states() -> None:
    codes = country.block_codes(1)
    assert country.level_sizes(1) == country.NODES
    # (least, most) children of a state, county, tract and block group
    limits = ((1, 500), (1, 3000), (1, 9), (1, 999))
    for digits, nodes, (least, most) in zip(
        country.DIGITS[:0:-1], country.NODES[:0:-1], limits[::-1], strict=True
    ):
        assert len(codes) == nodes and np.all(np.diff(codes) > 0)
        codes, sizes = np.unique(codes // 10**digits, return_counts=True)
        assert least <= sizes.min() and sizes.max() <= most
        assert sizes.max() > 2.5 * sizes.mean()  # unequal
    assert len(codes) == 51 and codes.min() == 1 and codes.max() == 56


def test_rows_are_the_populations(folder: Path) -> None:
    universe = read_codes(folder / "blocks.parquet")
    np.testing.assert_array_equal(universe, country.block_codes(TINY))
    rows = np.concatenate(read_files(folder))
    places = np.minimum(np.searchsorted(universe, rows), len(universe) - 1)
    np.testing.assert_array_equal(universe[places], rows)  # all of them are in the universe
    found = np.bincount(places, minlength=len(universe))
    np.testing.assert_array_equal(found, country.populations(TINY))
    assert len(rows) == country.row_count(TINY) == 330_000


# --- the watch ---


def test_a_step_is_timed_without_those_it_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    def process() -> Iterator[bytes]:
        wait(1)
        yield b"a"
        wait(2)
        yield b"bcd"
        wait(4)

    monkeypatch.setattr(scale, "clock", lambda: now)
    step = scale.Step()
    for _ in scale._timed(step, process):
        wait(100)
    assert step == scale.Step(seconds=7, made=4, largest_made=3, elements=2)
    nothing = scale.Step()
    assert list(scale._timed(nothing, lambda: wait(1))) == [] and nothing.seconds == 1


RELEASE = """
release: watched
input: {{format: parquet, path: {folder}/rows/part-*.parquet}}
output: {folder}/out
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: blocks
    domain: {{kind: ordered, column: block, lower: 0, upper: 570000000000000, cells: 262144}}
"""


def test_watches_a_release(folder: Path) -> None:
    scale.run_command(["keygen", str(folder / "release.key")])
    config = folder / "release.yaml"
    config.write_text(RELEASE.format(folder=folder))
    began = time.perf_counter()
    profile = scale.run_profile(config)
    seconds = time.perf_counter() - began
    phases, steps = profile.phases, profile.steps
    assert 0 < sum(phase.seconds for phase in phases.values()) < seconds
    assert 0 < profile.seconds(steps) < phases[scale.HISTOGRAM].seconds + profile.after.seconds
    assert min(phase.peak for phase in phases.values()) > 50
    assert 2**10 < profile.largest < 2**20
    # Of each chunk the nodes and the CDF; every chunk has an empty partial histogram.
    assert steps["_Finish"].elements == 2 * steps["_EmptyPlaces"].elements > 0
    # What is made on one side of a group is given on the other, in one element or several.
    assert steps["_Finish"].given > 0.9 * steps["_Draw"].largest_made
    text = "\n".join([*scale.profile_lines(profile), *scale.cost_lines(330_000, 8100, profile)])
    for name in ("histogram", "CountBundle", "_Draw", "_Finish", "ns per row"):
        assert name in text
    line = scale.table_line(330_000, 8100, scale.Run(seconds=1, processor=1, peak=1), profile)
    assert len(line) == len(scale.HEADING.splitlines()[1])


def test_sorted_counts_can_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[int] = []

    def watch(config: str) -> scale.Profile:
        watched.append(counting.DENSE_CELLS)
        return scale.Profile(
            phases={name: scale.Phase() for name in (scale.HISTOGRAM, scale.AFTER)}
        )

    monkeypatch.setattr(counting, "DENSE_CELLS", counting.DENSE_CELLS)
    monkeypatch.setattr(scale, "watched_release", watch)
    for arguments in ([], ["--sparse-counts"]):
        assert scale.main(["--profile", "release.yaml", *arguments]) == 0
    assert watched == [2**25, 0]


def test_a_step_of_another_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "watch_steps", lambda watch: watch.begin(scale.HISTOGRAM))
    monkeypatch.setattr("dptrees.pipelines.cli.command.main", lambda arguments: 0)
    with pytest.raises(SystemExit, match="after, report"):
        scale.watched_release("release.yaml")
