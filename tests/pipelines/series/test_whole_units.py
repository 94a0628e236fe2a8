"""Series that protect all rows of a unit: counted in at most so many periods, whatever happens."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.messages import UNITS
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.steps import count
from tests.pipelines.series.runs import People, refused

PERIODS, MOST, ROWS = People.periods, People.most_periods, People.most_rows


@pytest.fixture
def copy(people: People, tmp_path: Path) -> Any:
    """The first two periods, to go on with."""
    return people.copied(tmp_path / "copy", 2)


# --- what is counted ---


def test_no_person_is_counted_in_more_periods(people: People, tmp_path: Path) -> None:
    """Against a count by hand: of each person three rows a period, in the first two periods."""
    used: Counter[int] = Counter()
    (tmp_path / "by hand").mkdir()
    other, left_out = People(tmp_path / "by hand"), 0
    for period in range(1, PERIODS + 1):
        rows: dict[int, int] = defaultdict(int)
        for person in other.write_period(period)["person"].to_pylist():
            rows[person] += 1
        counted = [person for person in rows if used[person] < MOST]
        left_out += len(rows) - len(counted)
        used.update(counted)
        assert sum(people.counts(period)) == sum(min(ROWS, rows[person]) for person in counted)
    assert left_out > 5 and max(used.values()) == MOST


def test_a_later_run_in_memory_needs_the_run_before(people: People) -> None:
    spec: Any = ReleaseFolder(str(people.period_folder(2))).manifest["spec"]
    with pytest.raises(ValueError, match="before: period 2 goes on from the run before it"):
        release_rows(plan_from_spec(spec), [], ReleaseKey(bytes(32)))


def test_nothing_of_units_is_in_clear_and_the_last_run_leaves_none(people: People) -> None:
    assert len(list(people.period_folder(3).glob("units/*"))) == 64
    assert not people.period_folder(PERIODS).joinpath("units").exists()
    sizes = {path.stat().st_size for path in people.period_folder(3).glob("units/*")}
    assert len(sizes) == 1
    assert people.run("verify", people.period_folder(3)).code == 0


def test_all_shards_have_one_size(tmp_path: Path) -> None:
    """64 shards of 256 people each, more or less: sizes of their own would add up to a number."""
    made = People(tmp_path)
    made.write_period(1)
    table = pa.table({"x": np.zeros(2**14), "person": np.arange(2**14)})
    pq.write_table(table, made.file(0))
    outcome = made.period(1)
    assert outcome.code == 0, outcome.err
    sizes = {path.stat().st_size for path in made.period_folder(1).glob("units/*")}
    assert len(sizes) == 1
    manifest = ReleaseFolder(str(made.period_folder(1))).manifest
    spec: Any = manifest["spec"]
    rows = pa.concat_tables(pq.read_table(made.file(index)) for index in range(3))
    nonce = bytes.fromhex(str(manifest["nonce"]))
    key = ReleaseKey(bytes(range(32)))
    ours = release_rows(plan_from_spec(spec), rows.to_batches(), key, nonce=nonce)
    folder = ReleaseFolder(str(made.period_folder(1)))
    assert ours.part(UNITS, "all", 0, 7) == folder.part(UNITS, "all", 0, 7)


@pytest.mark.parametrize("kinds", [("units",), ("state", "units")])
def test_a_published_copy_without_what_is_sealed_is_verified(
    people: People, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    published = tmp_path / "period-0003"
    shutil.copytree(people.period_folder(3), published)
    for kind in kinds:
        shutil.rmtree(published / kind)
    outcome = people.run("verify", published)
    (line,) = (each for each in outcome.out.splitlines() if " files:" in each)
    assert line.startswith("ok") and all(f"{kind}/ is left out" in line for kind in kinds)


def test_a_part_of_what_is_sealed_is_missing(people: People, tmp_path: Path) -> None:
    copied = tmp_path / "period-0003"
    shutil.copytree(people.period_folder(3), copied)
    sorted(copied.glob("units/*"))[3].unlink()
    outcome = people.run("verify", copied)
    assert outcome.code != 0 and "-000003-" in outcome.out and "is missing" in outcome.out


def test_in_every_period_nothing_is_remembered(tmp_path: Path) -> None:
    made = People(tmp_path)
    for period in (1, 2):
        made.write_period(period)
        outcome = made.period(period, max_periods=PERIODS)
        assert outcome.code == 0, outcome.err
    assert not made.period_folder(1).joinpath("units").exists()


# --- what is refused ---


def test_another_bound_is_another_series(copy: People) -> None:
    refused(copy.period(3, max_periods=3), "is a run of another series")
    refused(copy.period(3, max_periods=PERIODS), "is a run of another series")


def test_other_shards_are_refused(copy: People) -> None:
    refused(copy.period(3, "--unit_shards=8"), "--unit_shards: 8 is not 64")


# --- lost and repeated between steps ---


@pytest.mark.parametrize("tag", ["units", "digest"])
def test_what_a_shard_leaves_is_not_lost(
    copy: People, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    own = count.CountBounded.process

    def losing(self: Any, element: Any) -> Any:
        for each in own(self, element):
            if element[0][1] != 5 or getattr(each, "output", "") != tag:
                yield each

    monkeypatch.setattr(count.CountBounded, "process", losing)
    refused(copy.period(3), "the engine lost or repeated data")
    assert not (copy.period_folder(3) / "manifest.json").exists()


def test_a_unit_that_is_counted_once_more_would_be_seen(
    copy: People, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CountedUnits.admit
    monkeypatch.setattr(CountedUnits, "admit", lambda self, ids, most: own(self, ids, most + 1))
    assert copy.period(3).code == 0
    assert copy.counts(3) != people.counts(3)


def test_a_period_with_units_of_another_type_is_refused(copy: People) -> None:
    """The same people as text would be counted once more, in more periods than the bound."""
    table = copy.write_period(3)
    as_text = table.set_column(1, "person", table["person"].cast(pa.string()))
    copy.write_table(as_text)
    refused(copy.period(3), "counted other units", "one unit could count as two")
    assert not copy.period_folder(3).exists()
    # Two types in one period, as the release and the check see them.
    pq.write_table(table, copy.file(1))
    refused(copy.period(3), copy.file(1).name, "one unit could count as two")
    refused(copy.run("check", copy.configured(3)), copy.file(1).name, "one unit could count as two")
