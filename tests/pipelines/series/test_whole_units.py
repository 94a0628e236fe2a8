"""Series that protect all rows of a unit: counted in at most so many periods, whatever happens."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.messages import UNITS
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import RunBefore, release_rows
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.steps import carry, count
from tests.pipelines.series.runs import (
    Runs,
    balance_alone,
    lost,
    refused,
    repeated,
    without_its_balance,
)

PERIODS, MOST, ROWS = 4, 2, 3
PEOPLE = 40


class People(Runs):
    """A workspace whose rows of each period are of people, who come more or less often."""

    def write_period(self, period: int, *, other: int = 0) -> pa.Table:
        """The rows of a period, in three files; `other` moves a row to another person."""
        random = np.random.default_rng(period)
        people = np.sort(random.zipf(1.5, 150) % PEOPLE)
        people[0] += other
        table = pa.table({"x": random.uniform(0, 100, 150), "person": people})
        shutil.rmtree(self.rows, ignore_errors=True)
        self.rows.mkdir()
        mixed = table.take(random.permutation(150))
        for index in range(3):
            pq.write_table(mixed.slice(50 * index, 50), self.file(index))
        return table

    @property
    def settings(self) -> dict[str, Any]:
        """Next to no noise, so that counts are seen."""
        tree = super().settings["trees"][0]
        return super().settings | {
            "privacy": {
                "rho": 10**9,
                "neighbors": "add_remove",
                "unit": "person",
                "max_rows": ROWS,
            },
            "series": {
                "periods": PERIODS,
                "period": 1,
                "fanout": 2,
                "unit": "per_series",
                "max_periods": MOST,
            },
            "trees": [tree],
        }

    def counts(self, period: int) -> list[int]:
        """The released counts of the leaves of a period, next to exact."""
        tables = [pq.read_table(path) for path in self.period_folder(period).glob("nodes/*")]
        nodes = pa.concat_tables(tables).to_pylist()
        deepest = max(row["level"] for row in nodes)
        return [
            row["count"]
            for row in sorted(nodes, key=lambda each: each["node"])
            if row["level"] == deepest and row["first"] == row["last"] == period
        ]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    """All periods. Tests only read it."""
    made = People(tmp_path_factory.mktemp("people"))
    made.released_periods(PERIODS)
    return made


@pytest.fixture
def copy(people: People, tmp_path: Path) -> People:
    """The first two periods, to go on with."""
    folder = tmp_path / "copy"
    folder.mkdir()
    own = People(folder)
    own.output.mkdir()
    for period in (1, 2):
        shutil.copytree(people.period_folder(period), own.period_folder(period))
    own.write_period(3)
    return own


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


def test_a_run_in_memory_is_the_same_as_the_pipelines(people: People, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    other, key = People(tmp_path / "memory"), ReleaseKey(bytes(range(32)))
    before: list[RunBefore] = []
    for period in (1, 2, 3):
        manifest = ReleaseFolder(str(people.period_folder(period))).manifest
        nonce = bytes.fromhex(str(manifest["nonce"]))
        spec: Any = manifest["spec"]
        rows = other.write_period(period)
        made = release_rows(
            plan_from_spec(spec), rows.to_batches(), key, nonce=nonce, before=before
        )
        before.append(RunBefore(made, nonce))
        ours = made.part(NODES, "all", 0, 0)
        theirs = ReleaseFolder(str(people.period_folder(period))).part(NODES, "all", 0, 0)
        assert ours.to_pylist() == theirs.to_pylist()


def test_a_later_run_in_memory_needs_the_run_before(people: People) -> None:
    spec: Any = ReleaseFolder(str(people.period_folder(2))).manifest["spec"]
    with pytest.raises(ValueError, match="before: period 2 goes on from the run before it"):
        release_rows(plan_from_spec(spec), [], ReleaseKey(bytes(32)))


def test_the_guarantee_is_of_all_rows_of_a_person(people: People) -> None:
    manifest: Any = ReleaseFolder(str(people.period_folder(2))).manifest
    assert manifest["series"] == {
        "id": "small",
        "period": 2,
        "periods": PERIODS,
        "max_periods": MOST,
        "unit": "per_series",
    }
    words = manifest["guarantee"]["words"]
    assert "differ in one unit's rows of all periods" in words
    assert "counted in the first 2 periods in which it has rows, and in no later one" in words
    assert manifest["guarantee"]["rho"] == str(10**9)
    assert manifest["guarantee"]["period"] == "per_series"
    page = (people.period_folder(2) / "report.html").read_text()
    assert "At most 3 rows per period, in at most 2 of the 4 periods" in page
    assert "At the same rho totals to date are " in page


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


# --- repeated, killed, restored ---


def test_a_run_goes_on_from_what_is_there(copy: People, people: People) -> None:
    assert copy.period(3).code == 0
    counts = copy.counts(3)
    assert counts == people.counts(3)
    (copy.period_folder(3) / "manifest.json").unlink()
    first = copy.snapshot(3)
    assert copy.period(3).code == 0
    again = copy.snapshot(3)
    assert {name: again[name] for name in first} == first


def test_a_run_is_repaired_with_the_same_bytes(copy: People) -> None:
    assert copy.period(3).code == 0
    whole = copy.snapshot(3)
    for path in list(copy.period_folder(3).glob("units/*"))[:7]:
        path.unlink()
    assert copy.period(3, "--repair").code == 0
    assert copy.snapshot(3) == whole


def test_rows_of_other_people_are_not_finished_as_the_same_draw(copy: People) -> None:
    """The counts are the same; who was counted is not."""
    assert copy.period(3).code == 0
    (copy.period_folder(3) / "manifest.json").unlink()
    table = copy.write_period(3)
    # A new person with as many rows as one of these has, in the same cells.
    shown = Counter(table["person"].to_pylist())
    once = next(person for person, number in shown.items() if number == 1)
    renamed = [1000 if each == once else each for each in table["person"].to_pylist()]
    pq.write_table(table.set_column(1, "person", pa.array(renamed)), copy.file(0))
    for index in (1, 2):
        copy.file(index).unlink()
    refused(copy.period(3), "made from other data")


@pytest.mark.parametrize("damage", ["deleted", "of another run", "cut off"])
def test_without_what_the_run_before_left_nothing_is_counted(copy: People, damage: str) -> None:
    path = sorted(copy.period_folder(2).glob("units/*"))[11]
    if damage == "deleted":
        path.unlink()
    elif damage == "cut off":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        other = sorted(copy.period_folder(1).glob("units/*"))[11]
        path.write_bytes(other.read_bytes())
    refused(copy.period(3), "is missing or damaged; --repair makes it again")
    assert not (copy.period_folder(3) / "manifest.json").exists()
    copy.write_period(2)
    assert copy.period(2, "--repair").code == 0
    shutil.rmtree(copy.period_folder(3))
    copy.write_period(3)
    assert copy.period(3).code == 0


def test_a_rotated_key_goes_on_with_the_key_of_the_series(copy: People, people: People) -> None:
    """Units are known by ids under the key of the first run."""
    outcome = copy.run("keygen", copy.key, "--rotate")
    assert outcome.code == 0, outcome.err
    assert copy.period(3).code == 0
    assert copy.counts(3) == people.counts(3)
    ids = [
        json.loads((copy.period_folder(each) / "manifest.json").read_text())["key_id"]
        for each in (2, 3)
    ]
    assert ids[0] == ids[1]
    shutil.rmtree(copy.period_folder(3))
    copy.key.write_text(ReleaseKey(bytes(32)).to_text() + "\n")
    refused(copy.period(3), "does not hold the key")


def test_another_bound_is_another_series(copy: People) -> None:
    refused(copy.period(3, max_periods=3), "is a run of another series")
    refused(copy.period(3, max_periods=PERIODS), "is a run of another series")


def test_other_shards_are_refused(copy: People) -> None:
    refused(copy.period(3, "--unit_shards=8"), "--unit_shards: 8 is not 64")


# --- lost and repeated between steps ---


def as_it_is(step: Any, element: Any) -> list[Any]:
    return list(step(element))


@pytest.mark.parametrize("fault", [lost, without_its_balance, balance_alone, repeated])
def test_units_that_are_lost_stop_the_run(
    copy: People, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]
) -> None:
    own = carry._OpenUnits.process
    monkeypatch.setattr(
        carry._OpenUnits,
        "process",
        # Of one shard of units.
        lambda self, element: (fault if element[2] == 5 else as_it_is)(
            lambda each: own(self, each), element
        ),
    )
    refused(copy.period(3), "the engine lost or repeated data")
    assert not (copy.period_folder(3) / "manifest.json").exists()


@pytest.mark.parametrize("tag", ["units", "digest"])
def test_what_a_shard_leaves_is_not_lost(
    copy: People, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    own = count.CountBounded.process

    def losing(self: Any, element: Any) -> Any:
        for each in own(self, element):
            if element[0][1] != 5 or getattr(each, "tag", "") != tag:
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
    shutil.rmtree(copy.rows)
    copy.rows.mkdir()
    pq.write_table(as_text, copy.file(0))
    refused(copy.period(3), "counted other units", "one unit could count as two")
    assert not copy.period_folder(3).exists()
    # Two types in one period, as the release and the check see them.
    pq.write_table(table, copy.file(1))
    refused(copy.period(3), copy.file(1).name, "one unit could count as two")
    refused(copy.run("check", copy.configured(3)), copy.file(1).name, "one unit could count as two")
