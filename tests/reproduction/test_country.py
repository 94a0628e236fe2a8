"""The generated country of benchmarks/make_country.py, and its release by benchmarks/scale.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import make_country as country
from benchmarks import scale
from dptrees.dpcore.hierarchy.leaves import universe_from_codes

TINY = 0.001


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


def test_a_release_of_it_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--fractions", "0.0001"]) == 0
    rows, leaves, seconds, processor, peak = capsys.readouterr().out.splitlines()[1].split()
    assert (rows, leaves) == ("33,000", "810")
    assert float(seconds) > 0 and float(processor) > 0.1 and float(peak) > 50
