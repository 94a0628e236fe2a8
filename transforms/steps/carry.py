"""State that a run of a series takes over from earlier runs, sealed: counts and units' periods.

    the folders of earlier runs -> sealed counts of every place -> (PlaceKey, bytes)
    the run's folder before this one -> sealed units of every shard -> (ShardKey, bytes)

A run is made only where the run before it is finished and no later one exists: then each
temporal node is measured once. State is checked by the manifest's checksums and by its seal,
which holds for one key, release, folder, period and place. The units are part of what the record
of the draw is made from: a restart with rows of other units is refused, even where its counts
are the same.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.bounding.unit_ids import mixed_families
from dptrees.dpcore.questions.messages import STATE, UNITS, Place
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.transforms import flow
from dptrees.transforms.conservation import tree_carried, tree_partials, tree_units, unit_rows
from dptrees.transforms.errors import InputError, ReleaseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import key_id_of_folder, read_manifest
from dptrees.transforms.folder.layout import sha256
from dptrees.transforms.folder.names import MANIFEST, period_folder
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.counting import KeyedStep
from dptrees.transforms.steps.draw import write_part

# The entry of a manifest with the families of types of the unit's columns, if the next run needs
# them.
UNIT_FAMILIES = "unit_families"


class SeriesError(ReleaseError):
    """A run cannot go on from the run before it."""


def check_turn(plan: ReleasePlan, output: str) -> None:
    """Check that it is the turn of a run: the one before it is finished, and none after it exists.

    Args:
        plan: of the run, or of a single release.
        output: its folder.

    Raises:
        SeriesError: a period is missing or was released before, or the folder is of another series.
    """
    if plan.run is None:
        return
    period = plan.run.period
    if _name(output) != period_folder(period):
        raise SeriesError(f"output: the folder of period {period} is {period_folder(period)}")
    for number in range(period + 1, plan.run.periods + 1):
        if files.exists(files.join(_beside(output, number), MANIFEST)):
            raise SeriesError(
                f"series: period {number} is released already, so period {period} comes too late: "
                "periods are released in their order"
            )
    if period > 1:
        earlier = {period - 1}.union(*_state_runs(plan).values())
        for number in sorted(earlier, reverse=True):
            _check_earlier(plan, _beside(output, number), number)


def _check_earlier(plan: ReleasePlan, folder: str, period: int) -> None:
    """Check that a finished run is of this series.

    Args:
        plan: of the run that goes on from it.
        folder: of the finished run.
        period: of the finished run.
    """
    assert plan.run is not None
    path = files.join(folder, MANIFEST)
    if not files.exists(path):
        if period < plan.run.period - 1:
            raise SeriesError(f"series: {folder} is missing, from which later runs go on")
        raise SeriesError(
            f"series: period {plan.run.period} comes after period {period}, of which {folder} "
            "contains no finished release; a period without rows is released too"
        )
    if read_manifest(path)["spec"] != json.loads(json.dumps(for_period(plan, period).spec())):
        raise SeriesError(
            f"series: {folder} is a run of another series: only the period may differ from run to "
            "run"
        )


def run_before(plan: ReleasePlan) -> ReleasePlan:
    """The plan of the run before a run."""
    assert plan.run is not None
    return for_period(plan, plan.run.period - 1)


def for_period(plan: ReleasePlan, period: int) -> ReleasePlan:
    """The plan of a series at another period.

    Args:
        plan: of one of its runs.
        period: from 1 on.
    """
    questions = []
    for question in plan.questions:
        assert isinstance(question, SeriesQuestion)
        questions.append(replace(question, period=period))
    return replace(plan, questions=tuple(questions))


def run_folder_before(plan: ReleasePlan, output: str) -> str:
    """The folder of the run before a run.

    Args:
        plan: of the run.
        output: its folder.
    """
    assert plan.run is not None
    return _beside(output, plan.run.period - 1)


def _beside(output: str, period: int) -> str:
    """The folder of another run of the series."""
    trimmed = output.rstrip("/")
    return files.join(trimmed[: -len(_name(trimmed)) - 1] or "/", period_folder(period))


def _name(folder: str) -> str:
    return folder.rstrip("/").rsplit("/", 1)[-1]


class State(NamedTuple):
    """A part of the state of an earlier run.

    Attributes:
        period: of that run.
        nonce: of its folder.
        tree, group, number: the place, or the shard of units.
        path: of the file.
        checksum: that the manifest names.
    """

    period: int
    nonce: bytes
    tree: str
    group: int
    number: int
    path: str
    checksum: str


class LeftByRun(NamedTuple):
    """What a run left under seal.

    Attributes:
        folder: of that run.
        key_id: the id of the key under which that run was made; "" before keys had ids.
        states: its parts.
        unit_families: the families of types of the unit's columns in the runs so far; empty in
            runs of earlier versions.
    """

    folder: str
    key_id: str
    states: list[State]
    unit_families: Mapping[str, str]


def left_by_run(output: str, period: int, kind: str) -> LeftByRun:
    """What an earlier run left of a kind.

    Args:
        output: the folder of a run of the series.
        period: of the earlier run.
        kind: of the parts.

    Raises:
        SeriesError: the folder of the earlier run is not there.
    """
    folder = _beside(output, period)
    path = files.join(folder, MANIFEST)
    if not files.exists(path):
        raise SeriesError(f"series: {folder} is missing, from which later runs go on")
    manifest = read_manifest(path)
    nonce = bytes.fromhex(manifest["nonce"])
    states = [
        State(
            *(period, nonce, part["tree"], part["key"], part["chunk"]),
            path=files.join(folder, *str(part["file"]).split("/")),
            checksum=part["sha256"],
        )
        for part in manifest["parts"]
        if str(part["file"]).startswith(f"{kind}/")
    ]
    families = manifest.get(UNIT_FAMILIES, {})
    return LeftByRun(folder, str(manifest.get("key_id", "")), states, families)


def _open(pipeline: Any, states: list[State], step: KeyedStep, main: str) -> Any:
    """Open what earlier runs sealed, and balance it.

    Args:
        pipeline: of the run.
        states: what is opened.
        step: opens it.
        main: the name of what the step gives.
    """
    opened = (
        pipeline
        # Plain tuples: of named ones Beam would make rows of a schema.
        | "Sealed" >> flow.Given([tuple(state) for state in states])
        # tuple(State) -> (PlaceKey or ShardKey, bytes)
        | "Open" >> flow.Each(step, also=(BALANCE,), main=main)
    )
    return opened[main], opened[BALANCE]


class Carry(flow.Transform):
    """The exact counts that runs before carried on.

    The input is the pipeline.

    Args:
        plan: of the run; a single release or a first run carries nothing.
        key: where the release key lies.
        output: the folder of the run.

    Returns:
        Collection[tuple[PlaceKey, bytes]], each place once for every run that carries on something
        of it; and the balance Collection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        self._plan, self._key, self._output = plan, key, output

    def expand(self, pipeline: Any) -> Any:
        states, key = self._states()
        return _open(pipeline, states, _Open(self._plan, key), "counts")

    def _states(self) -> tuple[list[State], KeyReference]:
        """The parts that are taken over, and the key under which they were sealed.

        Raises:
            SeriesError: an earlier run was made under another key than this one must be.
        """
        assert self._plan.run is not None
        before = left_by_run(self._output, self._plan.run.period - 1, STATE)
        if self._plan.keeps_key and self._key.key_id != before.key_id:
            raise SeriesError(
                f"series: {before.folder} was made under the release key {before.key_id}, and this "
                f"run must be too; it is to be made under {self._key.key_id}"
            )
        runs, states = _state_runs(self._plan), list[State]()
        for period in sorted({each for own in runs.values() for each in own}):
            left = left_by_run(self._output, period, STATE)
            # Trees that go on from several runs keep the key of the first one.
            if left.key_id != before.key_id:
                raise SeriesError(
                    f"series: {left.folder} was made under another release key than {before.folder}"
                )
            states += [state for state in left.states if period in runs[state.tree]]
        # The release key may have been rotated since.
        return states, self._key.checked(before.key_id)


def _state_runs(plan: ReleasePlan) -> dict[str, Sequence[int]]:
    """The runs from whose state each tree goes on, by its name."""
    questions = [each for each in plan.questions if isinstance(each, SeriesQuestion)]
    return {question.name: question.state_runs for question in questions}


def carries(plan: ReleasePlan) -> bool:
    """Whether a run goes on with counts of runs before."""
    return any(question.carried_places for question in plan.questions)


@flow.gives(tuple[tuple[str, int, int], bytes], **{BALANCE: tuple[str, int]})
class _Open(KeyedStep):
    """Reads and opens what is carried on of a place."""

    # The balances that each part takes part in.
    balances: tuple[Callable[[str], str], ...] = (tree_partials, tree_carried)

    def process(self, element: tuple[Any, ...]) -> Iterator[Any]:
        state = State(*element)
        sealed = sealed_part(state.path, state.checksum)
        question = self._plan.question(state.tree)
        assert isinstance(question, SeriesQuestion)
        try:
            opened = self._opened(replace(question, period=state.period), sealed, state)
        except ValueError:
            raise SeriesError(
                f"series: {self._words(state)} not what the run of its nonce sealed under this "
                "key: a part of the folder is of another backup or draw; restore the whole folder, "
                "or run that period with --repair"
            ) from None
        yield opened
        for balance in self.balances:
            yield flow.Tagged(BALANCE, (balance(state.tree), 1))

    def _opened(self, earlier: SeriesQuestion, sealed: bytes, state: State) -> Any:
        """Return the key of an opened part, and its content.

        Raises:
            ValueError: it was sealed under another key, or in another run.
        """
        place = Place(state.group, state.number)
        data = earlier.opened(place, sealed, self._key, self._plan.name, state.nonce)
        return (state.tree, *place), data

    def _words(self, state: State) -> str:
        return f"{state.path} is"


def sealed_part(path: str, checksum: str) -> bytes:
    """The sealed bytes of a part.

    Args:
        path: of its file.
        checksum: that the manifest names.

    Raises:
        SeriesError: the file is not the one that the manifest names.
    """
    data = files.read_bytes(path) if files.exists(path) else b""
    if sha256(data) != checksum:
        raise SeriesError(
            f"series: {path} is missing or damaged; --repair makes it again from the rows of its "
            "period"
        )
    sink = pa.BufferOutputStream()
    sink.write(data)
    sealed: bytes = pq.read_table(sink.getvalue(), use_threads=False)["sealed"][0].as_py()
    return sealed


ShardKey = tuple[str, int]  # tree, and the shard of units
# No rows of a shard begin so: it would be a length of 4 GB.
EARLIER = b"\xff\xff\xff\xff"


def has_earlier_units(plan: ReleasePlan) -> bool:
    """Whether it matters in which periods before this run units were counted."""
    return plan.is_later_run and bool(plan.remembering)


def leaves_units(plan: ReleasePlan) -> bool:
    """Whether the next run needs to know in how many periods units have been counted."""
    return any(question.leaves_units for question in plan.questions)


def series_families(plan: ReleasePlan, output: str) -> Mapping[str, str]:
    """Return the families of types that the unit's columns have in the runs of a series so far.

    Args:
        plan: of the run, with the families in its rows.
        output: its folder.

    Raises:
        SeriesError: the run before counted units of other families, whose ids differ.
        InputError: the families in the rows of this run are not known.
    """
    if plan.unit_families is None:
        raise InputError(
            f"{plan.remembering_key}: remembers units, so the types of their columns "
            f"must be known before the job: give schema=pa.schema(...) of {', '.join(plan.columns)}"
        )
    if not has_earlier_units(plan):
        return plan.unit_families
    assert plan.run is not None
    left = left_by_run(output, plan.run.period - 1, UNITS)
    for column, family in plan.unit_families.items():
        if left.unit_families.get(column, family) != family:
            error = mixed_families(column, family, left.unit_families[column])
            raise SeriesError(f"series: {left.folder} counted other units: {error}")
    return {**left.unit_families, **plan.unit_families}


def begun_key_id(plan: ReleasePlan, output: str) -> str | None:
    """The id of the key under which a run is to be made: its own, or `before_key_id`.

    Args:
        plan: of the run.
        output: its folder.
    """
    found = key_id_of_folder(output)
    return before_key_id(plan, output) if found is None else found


def before_key_id(plan: ReleasePlan, output: str) -> str | None:
    """The id of the key of the run before, where a run must be made under it; None where any key
    will do."""
    return key_id_of_folder(run_folder_before(plan, output)) if plan.keeps_key else None


class OpenUnits(flow.Transform):
    """What the runs before counted of every unit.

    The input is the pipeline.

    Args:
        plan: of the run.
        key: where the release key lies: that of the run before, since units are known by ids under
            it.
        output: the folder of the run.

    Returns:
        Collection[tuple[ShardKey, bytes]], one for each tree and shard; and the balance
        Collection[tuple[str, int]].

    Raises:
        SeriesError: the run before was made under another key.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        self._plan, self._key, self._output = plan, key, output

    def expand(self, pipeline: Any) -> Any:
        assert self._plan.run is not None
        left = left_by_run(self._output, self._plan.run.period - 1, UNITS)
        if self._key.key_id != left.key_id:
            raise SeriesError(
                f"series: units are known by the release key {left.key_id}, under which "
                f"{left.folder} was made; this run is to be made under {self._key.key_id}"
            )
        return _open(pipeline, left.states, _OpenUnits(self._plan, self._key), "units")


@flow.gives(tuple[ShardKey, bytes], **{BALANCE: tuple[str, int]})
class _OpenUnits(_Open):
    """Reads and opens what is known of the units of a shard."""

    # A message to a shard, as those with rows; and one of all that the run before left.
    balances = (unit_rows, tree_units)

    def _opened(self, earlier: SeriesQuestion, sealed: bytes, state: State) -> Any:
        name, nonce = self._plan.name, state.nonce
        units = earlier.opened_units(state.number, sealed, self._key, name, nonce)
        return (state.tree, state.number), EARLIER + units

    def _words(self, state: State) -> str:
        return f"the units of {state.path.rpartition(f'/{UNITS}/')[0]} are"


class SealUnits(flow.Transform):
    """Writes what the next run must know of units.

    The input is Collection[tuple[ShardKey, bytes]], each tree and shard once, and what
    `transforms.steps.record.RecordDraw` gives. All shards of a tree become files of one size, so
    the largest is found first: sizes of single shards would add up to the number of units.

    Args:
        plan: of the run.
        key: where the release key lies.
        output: the folder of the run.

    Returns:
        Collection[bytes]: the receipts of the parts.
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        self._plan, self._key, self._output = plan, key, output

    def expand(self, inputs: Any) -> Any:
        units, recorded = inputs
        # (ShardKey, bytes) -> (tree, units of the shard) -> (tree, the most)
        sizes = units | "Sizes" >> flow.Each(_UnitNumber())
        largest = sizes | "Largest" >> flow.Combine(max, int)
        step = flow.Each(
            _SealUnits(self._plan, self._key, self._output),
            flow.AsList(recorded),
            flow.AsDict(largest),
        )
        return units | "Seal" >> step


@flow.gives(tuple[str, int])
class _UnitNumber(flow.Step):
    def process(self, element: tuple[ShardKey, bytes]) -> Iterator[tuple[str, int]]:
        (tree, _), units = element
        yield tree, len(CountedUnits.from_bytes(units).units)


@flow.gives(bytes)
class _SealUnits(KeyedStep):
    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__(plan, key)
        self._output = output

    def process(
        self, element: tuple[ShardKey, bytes], draw: Sequence[bytes], largest: Mapping[str, int]
    ) -> Iterator[bytes]:
        (tree, shard), units = element
        question = self._plan.question(tree)
        if question.leaves_units:
            part = question.seal_units(shard, units, self.source(draw), largest[tree])
            yield write_part(self._output, part)
