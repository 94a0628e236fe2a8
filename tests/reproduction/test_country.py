"""The generated country of benchmarks/make_country.py, and the watch of benchmarks/scale.py."""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_states_are_very_unequal() -> None:
    states = np.unique(country.block_codes(0.1) // 10**13, return_counts=True)[1]
    assert states.max() > 50 * states.min()


def test_rows_are_the_populations(folder: Path) -> None:
    universe = read_codes(folder / "blocks.parquet")
    np.testing.assert_array_equal(universe, country.block_codes(TINY))
    rows = np.concatenate(read_files(folder))
    places = np.minimum(np.searchsorted(universe, rows), len(universe) - 1)
    np.testing.assert_array_equal(universe[places], rows)  # all of them are in the universe
    found = np.bincount(places, minlength=len(universe))
    np.testing.assert_array_equal(found, country.populations(TINY))
    assert len(rows) == country.row_count(TINY) == 330_000


def test_populations_are_heavy_tailed_and_often_zero() -> None:
    people = country.populations(0.01)
    blocks = len(people)
    # Five and a half standard deviations; a few small blocks are rounded to nobody.
    slack = 5.5 * math.sqrt(0.3 * 0.7 / blocks)
    assert abs(np.mean(people == 0) - country.EMPTY_BLOCKS) < slack + 0.001
    spread = np.log(people[people > 0]).std()
    assert 1.05 < spread < 1.15
    assert people.max() > 40 * people.mean()


def test_files_are_even_samples_in_no_order(folder: Path) -> None:
    universe, people = country.block_codes(TINY), country.populations(TINY)
    files = read_files(folder)
    assert len(files) == 4
    for rows in files:
        here = np.bincount(np.searchsorted(universe, rows), minlength=len(universe))
        assert np.abs(here - people / len(files)).max() < 1
        # Of two neighbors in a shuffled file the second is larger as often as not.
        assert 0.48 < np.mean(rows[1:] > rows[:-1]) < 0.52
        assert abs(np.corrcoef(rows, np.arange(len(rows)))[0, 1]) < 5 / math.sqrt(len(rows))


def test_the_same_again(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(country, "ROWS_PER_FILE", 100_000)
    stale = tmp_path / "rows" / "part-0009-of-0009.parquet"
    stale.parent.mkdir()
    stale.touch()
    assert country.main([str(tmp_path), "--fraction", str(TINY)]) == 0
    assert "330,000 rows in 8,100 blocks" in capsys.readouterr().out
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet"))]
    assert names == [path.relative_to(tmp_path) for path in sorted(tmp_path.rglob("*.parquet"))]
    assert len(names) == 5
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


WEIGHTS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30).map(np.array)


@given(WEIGHTS, st.integers(0, 10**6))
def test_shares_are_whole_and_sum_up(weights: country.Floats, total: int) -> None:
    found = country.shares(weights, total)
    assert found.sum() == total and found.min() >= 0
    assert np.abs(found - weights / weights.sum() * total).max() < 1 + 1e-6


@given(WEIGHTS, st.integers(1, 9), st.floats(0, 1))
def test_fanouts_keep_their_limits(weights: country.Floats, most: int, part: float) -> None:
    children = len(weights) + int(part * (most - 1) * len(weights))
    found = country.fanouts(weights, children, most)
    assert found.sum() == children and found.min() >= 1 and found.max() <= most


@pytest.mark.parametrize("children", [2, 10])
def test_fanouts_refuse_what_does_not_fit(children: int) -> None:
    with pytest.raises(ValueError, match="do not fit 3 nodes"):
        country.fanouts(np.ones(3), children, 3)


@pytest.mark.parametrize("fraction", ["0", "126", "nan", "half"])
def test_refuses_other_fractions(
    tmp_path: Path, fraction: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        country.main([str(tmp_path), "--fraction", fraction])
    assert stopped.value.code == 2
    assert "--fraction" in capsys.readouterr().err


# --- the watch ---


class Wrapped:
    """Stand-in for the class in which Beam wraps tagged and windowed elements."""

    def __init__(self, value: object) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("element", "size"),
    [
        (b"abc", 3),
        (("tree", 0, 7), 20),
        ((("tree", 0, 7), b"abc"), 23),
        (("tree", [b"abc", b"d"]), 8),
        (Wrapped(("tree", Wrapped(b"abc"))), 7),
        (np.zeros(5, np.int16), 10),
        (pa.record_batch({"x": [1, 2]}), 0),
        (None, 0),
    ],
)
def test_element_bytes(element: object, size: int) -> None:
    assert scale.element_bytes(element) == size


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


def test_a_peak_is_that_of_its_phase() -> None:
    scale.peak_memory()
    # Pages of their own, which are given back for certain: an allocator may keep its own.
    with mmap.mmap(-1, 2**26) as grown:  # 64 MB
        grown.write(b"1" * 2**20 * 64)
        large = scale.peak_memory()
    scale.peak_memory()
    assert scale.peak_memory() < large - 50


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


def test_a_failed_release_reports_why(tmp_path: Path) -> None:
    config = tmp_path / "release.yaml"
    config.write_text("release: nothing\n")
    for run in (scale.run_profile, lambda path: scale.run_command(["release", str(path)])):
        with pytest.raises(SystemExit, match=r"failed:\n(.*\n)*dptrees: .*release.yaml"):
            run(config)


def test_a_step_of_another_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "watch_steps", lambda watch: watch.begin(scale.HISTOGRAM))
    monkeypatch.setattr("dptrees.pipelines.cli.command.main", lambda arguments: 0)
    with pytest.raises(SystemExit, match="after, report"):
        scale.watched_release("release.yaml")
