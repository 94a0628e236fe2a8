"""Releases that another engine counts: the same bytes, and every loss or repetition is found."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.python.error import user_errors
from dptrees.pipelines.spark import tasks
from dptrees.pipelines.spark import tasks as messages
from dptrees.pipelines.spark.release import release
from dptrees.transforms.steps import count, draw
from tests.pipelines.python.conftest import fixed, read_config, read_files
from tests.pipelines.python.test_making import PRIVATE
from tests.pipelines.refusals import not_refused
from tests.pipelines.spark.conftest import MINUTES, UNIT, by_spark, compare, config
from tests.pipelines.spark.stand_in import Engine, Piece, engine_in

EACH_KIND = (
    *("cdf", "sums", "hierarchy", "sparse-paths", "box-count-min"),
    *("sketch", "distinct", "mean", "table", "exponential", "adaptive"),
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A stand-in for Spark."""
    return engine_in(monkeypatch)


@pytest.fixture
def pieces_of_100_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that most messages have several pieces."""
    monkeypatch.setattr(messages, "PIECE_BYTES", 100)


@pytest.mark.usefixtures("pieces_of_100_bytes")
@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
@pytest.mark.parametrize("name", EACH_KIND)
def test_the_same_bytes(name: str, unit: dict[str, Any], rows: pa.Table, engine: Engine) -> None:
    """Compare with the release of the rows in memory; partitions and batches differ."""
    given = read_config(name)
    given["privacy"] |= unit
    if name == "cdf" and unit:  # rows without a unit are units of their own
        given["privacy"] |= {"unit": "delay", "null_unit": "own"}
    compare(engine.frame(rows), rows, given)
    assert engine.actions == 1


@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
def test_no_rows(unit: dict[str, Any], rows: pa.Table, engine: Engine) -> None:
    """An empty DataFrame may have no partition, and so no task."""
    compare(engine.frame(rows.slice(0, 0)), rows.slice(0, 0), config(**unit))


def without(name: str) -> Callable[[list[Piece]], list[Piece]]:
    """Lose the first piece of an output."""

    def lost(pieces: list[Piece]) -> list[Piece]:
        place = next(place for place, each in enumerate(pieces) if each["output"] == name)
        return pieces[:place] + pieces[place + 1 :]

    return lost


def repeated(name: str) -> Callable[[list[Piece]], list[Piece]]:
    """Hand on the pieces of an output twice."""

    def twice(pieces: list[Piece]) -> list[Piece]:
        own = [each for each in pieces if each["output"] == name]
        return pieces + [each | {"sender": each["sender"] + 1000} for each in own]

    return twice


FAULTS = [(change, output) for change in (without, repeated) for output in ("balance", "sent")]


def check_fault_is_found(rows: pa.Table, engine: Engine, given: dict[str, Any], out: str) -> None:
    with pytest.raises(dptrees.Error, match=r"lost|again"), user_errors():
        by_spark(engine.frame(rows), given, output=out)
    assert not Path(out, "manifest.json").exists()


def test_what_the_driver_gets_is_checked(rows: pa.Table, engine: Engine) -> None:
    for number, (change, output) in enumerate([*FAULTS, (without, "counts"), (repeated, "counts")]):
        engine.collected = change(output)
        check_fault_is_found(rows, engine, config(), f"out-{number}")


def test_a_shuffle_is_checked(rows: pa.Table, engine: Engine) -> None:
    for number, (change, output) in enumerate([*FAULTS, (without, "rows"), (repeated, "rows")]):
        engine.shuffled = change(output)
        check_fault_is_found(rows, engine, config(**UNIT), f"out-{number}")


def test_a_task_that_is_run_again_with_other_rows(rows: pa.Table, engine: Engine) -> None:
    """Some shards have the output of its first run, others that of its second, of as many rows."""
    minutes = random.Random(0).choices(range(300), k=rows.num_rows)
    others = rows.set_column(rows.column_names.index("city"), "city", rows["city"][::-1])
    others = others.set_column(rows.column_names.index("minutes"), "minutes", pa.array(minutes))
    again: list[list[Piece]] = []

    def mixed(pieces: list[Piece]) -> list[Piece]:
        again.append(pieces)
        if len(again) == 1:
            return pieces
        (first, second) = again
        assert len(first) == len(second)
        return [
            one if one["output"] != "rows" or one["number"] % 2 else other
            for one, other in zip(first, second, strict=True)
        ]

    engine.shuffled = mixed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_spark(engine.frame(rows), config(**UNIT))
        with pytest.raises(dptrees.Error, match="ran a task again"), user_errors():
            by_spark(engine.frame(others), config(**UNIT), output="out")
    assert not Path("out", "manifest.json").exists()


@pytest.mark.parametrize("unit", [{}, UNIT], ids=["row", "unit"])
def test_a_batch_that_is_counted_twice(
    unit: dict[str, Any], rows: pa.Table, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tasks.SendRows if unit else count.CountBundle
    process = step.process

    def twice(self: Any, batch: pa.RecordBatch) -> Any:
        yield from process(self, batch)
        yield from process(self, batch)

    monkeypatch.setattr(step, "process", twice)
    with pytest.raises(dptrees.Error, match="rows do not balance"), user_errors():
        by_spark(engine.frame(rows), config(**unit), output="out")


def test_what_is_refused_before_a_row_is_read(rows: pa.Table, engine: Engine) -> None:
    table = rows.append_column("list", pa.array([[1]] * rows.num_rows, pa.list_(pa.int64())))

    def attempt(given: dict[str, Any]) -> None:
        release(engine.frame(table), config() | given)

    def tree(column: str) -> dict[str, Any]:
        return {"trees": [{"name": "one", "domain": MINUTES | {"column": column}}]}

    refusals = [
        (tree("Minutes"), "did you mean"),
        (tree("city"), "has type string"),
        (tree("list"), "cast it first"),
        ({"privacy": config(**UNIT)["privacy"]}, ": key: is needed"),
    ]
    assert not not_refused(attempt, refusals, dptrees.Error)
    assert engine.actions == 0


def test_no_frame() -> None:
    frames = (None, {"age": [1]}, pa.table({"age": [1]}))
    refusals = [(frame, "is no DataFrame of Spark") for frame in frames]
    assert not not_refused(lambda frame: release(frame, config()), refusals, dptrees.Error)


def test_a_stream(engine: Engine) -> None:
    frame = engine.frame(pa.table({"minutes": [1]}))
    frame.isStreaming = True  # type: ignore[attr-defined]
    with pytest.raises(dptrees.Error, match="it is a stream"):
        release(frame, config())


def test_another_version_on_an_executor(
    rows: pa.Table, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "__version__", "9.9.9")
    with pytest.raises(dptrees.Error, match=r"^spark: an executor has dptrees 9\.9\.9"):
        release(engine.frame(rows), config())


def test_an_unexpected_error_shows_no_value(
    rows: pa.Table, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, batch: pa.RecordBatch) -> Any:
        raise KeyError(batch.to_pylist()[0])

    monkeypatch.setattr(count.CountBundle, "process", fail)
    with pytest.raises(dptrees.Error) as caught:
        release(engine.frame(rows), config())
    assert str(caught.value) == (
        "spark: a task failed with KeyError in test_counting.py, line "
        f"{fail.__code__.co_firstlineno + 1}; this is a fault of dptrees"
    )


def test_a_key_that_is_used_once_needs_no_executor(rows: pa.Table, engine: Engine) -> None:
    """Nor a file of a key: rows that are units of their own are counted without it."""
    made = release(engine.frame(rows), config())
    assert abs(made["minutes"].range(0, 300).estimate - rows.num_rows) < 500


SERIES = config() | {
    "series": {"periods": 2, "period": "${period}"},
    "parameters": {"period": {"type": "integer"}},
}


def test_a_series(rows: pa.Table, engine: Engine) -> None:
    """A later run continues from the run before it."""
    for period in (1, 2):
        part = rows.slice(period * 5000, 5000)
        compare(engine.frame(part), part, SERIES, parameters={"period": period})


def test_a_series_that_counts_periods(rows: pa.Table, engine: Engine) -> None:
    given = SERIES | {
        "series": SERIES["series"] | {"unit": "per_series", "max_periods": 1},
        "privacy": config(**UNIT)["privacy"],
    }
    with pytest.raises(dptrees.Error, match=r"^series\.max_periods: "):
        release(engine.frame(rows), given, key="release.key", output="out", set={"period": 1})
    people = {"name": "people", "domain": {"kind": "distinct", "column": given["privacy"]["unit"]}}
    new = given | {
        "series": SERIES["series"] | {"unit": "per_series"},
        "trees": [people | {"to_date": True}],
    }
    with pytest.raises(dptrees.Error, match=r"^to_date: "):
        release(engine.frame(rows), new, key="release.key", output="out", set={"period": 1})
    assert engine.actions == 0


def test_private_keys(rows: pa.Table, engine: Engine) -> None:
    """The keys are selected by a release before, which reads the DataFrame once more."""
    compare(engine.frame(rows), rows, PRIVATE)
    assert engine.actions == 2


def test_a_stopped_driver(rows: pa.Table, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the draw is recorded, the release is finished with the same noise, or refused."""
    fixed(rows, config(), output="expected")
    with monkeypatch.context() as stopped:

        def stop(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        stopped.setattr(draw, "write_part", stop)
        with pytest.raises(KeyboardInterrupt):
            by_spark(engine.frame(rows), config(), output="out")
    assert Path("out", "record.json").exists() and not Path("out", "manifest.json").exists()
    with pytest.raises(dptrees.Error), user_errors():
        by_spark(engine.frame(rows.slice(1)), config(), output="out")
    made = release(engine.frame(rows), config(), key="release.key", output="out")
    assert made.path == "out"
    assert read_files(Path("out")) == read_files(Path("expected"))


def test_a_finished_release_is_not_counted_again(rows: pa.Table, engine: Engine) -> None:
    release(engine.frame(rows), config(), key="release.key", output="out")
    with pytest.warns(UserWarning, match="no rows were read"):
        release(engine.frame(rows), config(), key="release.key", output="out")
    assert engine.actions == 1


def test_a_contract_about_columns(rows: pa.Table, engine: Engine) -> None:
    """Spark's types have the names that they have in a Parquet file."""

    def given(**types: str) -> dict[str, Any]:
        return config() | {"input": {"format": "parquet", "path": "unused", "schema": types}}

    with pytest.raises(dptrees.Error, match="rows has column 'city' of type string"):
        release(engine.frame(rows), given(city="int64"))
    assert engine.actions == 0
    release(engine.frame(rows), given(city="string", minutes="int64"))
    assert engine.actions == 1
