"""A Spark DataFrame as the rows of a release: its Arrow schema, its rows, its job's failure."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from dptrees.dpcore import __version__
from dptrees.dpcore.bounding.row_choice import MOST_SHARDS, SHARDS
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.python.error import Error
from dptrees.pipelines.python.making import OneTimeKey
from dptrees.pipelines.run.stage import Stage
from dptrees.pipelines.spark.tasks import (
    COUNTS,
    FAULT,
    FAULT_MARK,
    ORDER,
    RECEIVED,
    SHARD_COLUMNS,
    TABLE,
    Digest,
    KeyIsUsedError,
    Message,
    NoKey,
    UnusedKey,
    Work,
    check_digests,
    count_rows,
    count_shards,
    from_pieces,
    give_shards,
)
from dptrees.transforms import flow
from dptrees.transforms.errors import InputError, ReleaseError, error_in
from dptrees.transforms.held import KEPT_SCHEME
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.file_columns import FileColumns, described
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.counting import SLOTS, matched_trees

_MISSING = re.compile(r"No module named '(dptrees|dpcore|transforms|pipelines)\b")
_NO_ROOM = "spark.driver.maxResultSize"
_OURS = re.compile(rf"{FAULT_MARK}: (\w+ in [\w.]+, line \d+)")
_PASSING = ("ExecutorLostFailure", "FetchFailed", "was cancelled", "SparkContext was shut down")
_CONDITION = re.compile(r"[A-Z][A-Z0-9_.]+")


def spark_fault(error: Exception) -> ReleaseError:
    """Return how the failure of a Spark job is reported.

    Spark's own message may show a value of a row, such as a text that it cannot cast. So only the
    name of the error is passed on.

    Args:
        error: as pyspark raised it.
    """
    text = str(error)
    result = error_in(text)
    if result is not None:
        return result
    if _MISSING.search(text):
        return InputError(
            "spark: an executor has no dptrees, or another version: install the driver's version "
            "on every executor, on Databricks as a library of the cluster"
        )
    if _NO_ROOM in text:
        return InputError(
            f"spark: the partial counts of all partitions are larger than {_NO_ROOM}: raise it, or "
            "give df.coalesce(N) with fewer partitions"
        )
    if (found := _OURS.search(text)) is not None:
        return InputError(f"spark: a task failed with {found[1]}; this is a fault of dptrees")
    name = _condition(error)
    again = any(each in text for each in _PASSING)
    return InputError(f"spark: the job failed with {name}; see Spark's own log", again=again)


def _condition(error: Exception) -> str:
    """The name of an error of Spark; never a part of its message, which may hold a value."""
    # Spark 3.5 has the second of these methods only.
    for method in ("getCondition", "getErrorClass"):
        if callable(read := getattr(error, method, None)):
            name = read()
            if isinstance(name, str) and _CONDITION.fullmatch(name):
                return name
            break
    return type(error).__name__


# By the name that every version of Spark gives a type.
_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "daytimeinterval": pa.duration("us"),
}


def arrow_schema(frame: Any) -> pa.Schema:
    """Return the Arrow types of the columns of a DataFrame.

    A column of another type is not there: Arrow batches cannot hold it, or a release not read it.

    Args:
        frame: the DataFrame.
    """
    return pa.schema(
        [
            pa.field(field.name, type)
            for field in frame.schema.fields
            if (type := arrow_type(field.dataType)) is not None
        ]
    )


def arrow_type(type: Any) -> pa.DataType | None:
    """Return the Arrow type of a Spark type; None if a release cannot read it."""
    name = type.typeName()
    if name == "struct":
        inner = [(field.name, arrow_type(field.dataType)) for field in type.fields]
        return pa.struct([(name, each) for name, each in inner if each is not None])
    if name == "decimal" or name.startswith("decimal("):
        return pa.decimal128(type.precision, type.scale)
    if name == "array":
        inner_type = arrow_type(type.elementType)
        return None if inner_type is None else pa.list_(inner_type)
    return _TYPES.get(name.split("(")[0].replace(" ", "").split("collate")[0])


def check_readable(frame: Any, names: list[str]) -> None:
    """Refuse columns whose type no release reads.

    Args:
        frame: the DataFrame.
        names: the columns that are read.

    Raises:
        InputError: naming the column and its type.
    """
    for field in frame.schema.fields:
        if field.name in names and arrow_type(field.dataType) is None:
            raise InputError(
                f"input: rows: column {field.name!r} has the type {field.dataType.simpleString()} "
                "of Spark, which no tree and no privacy unit reads: cast it first"
            )


_NAME = "rows"
# Plans that are larger travel without their public tables, which workers read from the output.
_MOST_PLAN_BYTES = 2**25


def check_frame(frame: Any) -> None:
    """Refuse rows that are no table of Spark.

    Args:
        frame: a DataFrame, of Spark or of Spark Connect.

    Raises:
        Error: it is something else, or a stream.
    """
    if not hasattr(type(frame), "mapInArrow"):
        library = type(frame).__module__.partition(".")[0]
        way = "give df.to_spark()" if library == "pyspark" else "dptrees.release takes other tables"
        raise Error(f"df: {library}.{type(frame).__name__} is no DataFrame of Spark; {way}")
    if getattr(frame, "isStreaming", False):
        raise Error("df: it is a stream, but a release counts all rows once: give a table")


def counted_by_spark(frame: Any, stage: Stage) -> Stage:
    """Return a stage whose rows are a DataFrame, which Spark counts."""
    source = _Source(frame, stage)
    return replace(stage, source=source, counting=source.counting)


class _Source:
    """The source of a stage: it checks the columns, and counts them once the job runs."""

    def __init__(self, frame: Any, stage: Stage) -> None:
        self._frame = frame
        self._has_key = not isinstance(stage.configuration.key, OneTimeKey)
        self._in_memory = stage.output.startswith(f"{KEPT_SCHEME}://")
        # The plans of the stages, with their public tables.
        self._plans: dict[bytes, ReleasePlan] = {}

    @property
    def name(self) -> str:
        """The name of the rows in messages."""
        return _NAME

    @property
    def paths(self) -> tuple[str, ...]:
        """An empty tuple: Spark reads the rows."""
        return ()

    def types(self, units: Sequence[str] = ()) -> dict[str, str]:
        """Return the names of the types of the columns, as of a Parquet file."""
        return described(arrow_schema(self._frame))

    def checked(self, plan: ReleasePlan) -> list[tuple[str, int]]:
        """Return no size, after checking that Spark can count the columns of a plan.

        Raises:
            InputError: if a column is missing, or has a type that cannot be used; if a key is
                needed on executors.
        """
        self._names(plan)
        if plan.remembering:
            raise InputError(
                f"{plan.remembering_key}: Spark's executors do not count in how many "
                "periods a unit is: make this series by the command"
            )
        if not self._has_key and needs_key(plan):
            raise InputError(
                "key: is needed, since Spark's executors use it while they count: give "
                "key='env:NAME', or a file that every executor can read"
            )
        if self._in_memory and matched_trees(plan):
            raise InputError(
                "output: is needed with a table of leaves that is read in parts: give a folder "
                "that every executor can read"
            )
        self._plans[plan.digest] = plan
        return [(_NAME, 0)]

    def reading(self, plan: ReleasePlan) -> flow.Transform:
        """Return one element in place of rows, which Spark reads, and no balance."""
        return _NoRows()

    def counting(self, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> flow.Transform:
        """Return the transform that makes partial counts, in place of the steps that count rows."""
        tags = [BALANCE, *([SLOTS] if matched_trees(plan) else [])]
        return flow.Each(_SparkJob(self, plan, key, nonce), also=tags, main=COUNTS)

    def _names(self, plan: ReleasePlan) -> list[str]:
        """The columns of the DataFrame that a plan reads.

        Raises:
            InputError: if one is missing, or has a type that cannot be used.
        """
        schema = arrow_schema(self._frame)
        # A column of another type exists: its type is the mistake.
        check_readable(self._frame, [name.split(".")[0] for name in plan.columns])
        within = FileColumns.from_schema(schema, _NAME, plan).within
        return list(dict.fromkeys(names[0] for names in within.values()))

    def partial_counts(self, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> Iterator[Any]:
        """Let Spark count all rows, in one action, and yield the outputs of its tasks."""
        names = self._names(plan)
        work = self._work(plan, key, names, nonce)
        try:
            pieces = self._job(plan, work, names).collect()
        except Exception as error:
            raise spark_fault(error) from None
        yield from _outputs(list(from_pieces(pieces)), is_direct=plan.unit.is_row)

    def _work(self, plan: ReleasePlan, key: KeyReference, names: list[str], nonce: bytes) -> bytes:
        whole = self._plans.get(plan.digest, plan)
        used = key if needs_key(whole) else UnusedKey(reference="")
        shards = _shard_count(self._frame)
        work = Work(plan=whole, key=used, names=tuple(names), shards=shards, nonce=nonce)
        if matched_trees(plan):
            return pickle.dumps(replace(work, plan=plan))
        data = pickle.dumps(work)
        if len(data) > _MOST_PLAN_BYTES and not self._in_memory:
            data = pickle.dumps(replace(work, plan=plan))
        return data

    def _job(self, plan: ReleasePlan, work: bytes, names: list[str]) -> Any:
        """The table of messages to the driver."""
        rows = self._selected(names)
        sent = rows.mapInArrow(partial(count_rows, __version__, work), TABLE)
        if plan.unit.is_row:
            return sent
        single = self._frame.sparkSession.range(0, 1, 1, 1)
        shards = single.mapInArrow(partial(give_shards, __version__, work), TABLE)
        by_shard = sent.union(shards).repartition(*SHARD_COLUMNS).sortWithinPartitions(*ORDER)
        return by_shard.mapInArrow(partial(count_shards, __version__, work), TABLE)

    def _selected(self, names: list[str]) -> Any:
        """The columns, by their places: Spark compares names without their case, and reads dots."""
        every = self._frame.schema.names
        numbered = [f"c{place}" for place in range(len(every))]
        chosen = [numbered[every.index(name)] for name in names]
        return self._frame.toDF(*numbered).select(*chosen)


class _NoRows(flow.Transform):
    def expand(self, start: Any) -> Any:
        return start | "Start" >> flow.Given([None]), start | "NoBalance" >> flow.Given([])


class _SparkJob(flow.Step):
    """Let Spark count all rows, when the job comes to the step that counts them."""

    def __init__(self, source: _Source, plan: ReleasePlan, key: KeyReference, nonce: bytes) -> None:
        self._source, self._plan, self._key, self._nonce = source, plan, key, nonce

    def process(self, _: None) -> Iterator[Any]:
        yield from self._source.partial_counts(self._plan, self._key, self._nonce)


def needs_key(plan: ReleasePlan) -> bool:
    """Whether the release key is used where rows are counted."""
    if not plan.unit.is_row:
        return True
    choices = KeyedChoices(key=NoKey(), release=plan.name)  # type: ignore[arg-type]
    try:
        for question in plan.questions:
            question.with_choices(choices).counter(dense=False, choices=choices)
    except KeyIsUsedError:
        return True
    return False


def _shard_count(frame: Any) -> int:
    """The number of shards of units, from the number of partitions of a shuffle.

    No result depends on it.
    """
    partitions = frame.sparkSession.conf.get("spark.sql.shuffle.partitions")
    number = int(partitions) if re.fullmatch("[0-9]+", partitions or "") else 0
    return min(max(SHARDS, 1 << max(number - 1, 0).bit_length()), MOST_SHARDS)


def _outputs(messages: list[Message], *, is_direct: bool) -> Iterator[Any]:
    """Yield the outputs of all tasks, after checking that none was lost or mixed.

    Args:
        messages: of all tasks.
        is_direct: whether the driver is the receiver of the tasks that read rows.

    Raises:
        InputError: a task met an error that a user can fix.
        ConservationError: Spark lost or mixed messages.
    """
    for each in messages:
        if each.output == FAULT:
            raise InputError(each.data.decode())
    received = Digest()
    for _ in received.passing(messages) if is_direct else ():
        pass
    digests = [each for each in messages if each.is_digest]
    check_digests([*digests, received.message(RECEIVED)], gives_shards=not is_direct)
    for each in messages:
        if not each.is_digest:
            value = each.value
            yield value if each.output == COUNTS else flow.Tagged(each.output, value)
