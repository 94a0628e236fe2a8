"""What a run of a series takes over from the run before: its sealed state, opened on workers.

    the run's folder before this one -> sealed counts of every place -> (PlaceKey, bytes)

The runs of a series lie side by side. A run is made only where the run before it in the same series
is finished, and no later one exists: then each temporal node is measured once. What is read is
checked by the manifest's checksums, and by the seal, which holds under one key, release, folder,
period and place only.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.questions.place import Place
from dpcore.release.plan import ReleasePlan
from dpcore.series.question import STATE, SeriesQuestion
from transforms import files
from transforms.conservation import tree_carried, tree_partials
from transforms.errors import ReleaseError
from transforms.existing_release import read_manifest
from transforms.key_reference import KeyReference
from transforms.keyed import KeyedDoFn
from transforms.layout import MANIFEST, period_folder, sha256
from transforms.readers.read import BALANCE


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
        _check_before(plan, run_folder_before(plan, output))


def _check_before(plan: ReleasePlan, folder: str) -> None:
    before = run_before(plan)
    assert plan.run is not None and before.run is not None
    path = files.join(folder, MANIFEST)
    if not files.exists(path):
        raise SeriesError(
            f"series: period {plan.run.period} comes after period {before.run.period}, of which "
            f"{folder} holds no finished release; a period without rows is released too"
        )
    if read_manifest(path)["spec"] != json.loads(json.dumps(before.spec())):
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


class LeftByRun(NamedTuple):
    """What the run before left under seal.

    Attributes:
        folder: of that run.
        nonce: of the folder.
        key_id: the id of the key under which that run was made; "" before keys had ids.
        parts: the tree, group, number, file and checksum of each part.
    """

    folder: str
    nonce: bytes
    key_id: str
    parts: list[tuple[str, int, int, str, str]]


def left_by_run(plan: ReleasePlan, output: str, kind: str) -> LeftByRun:
    """What the run before left of a kind.

    Args:
        plan: of the run that goes on from it.
        output: the folder of the run.
        kind: of the parts.
    """
    folder = run_folder_before(plan, output)
    manifest = read_manifest(files.join(folder, MANIFEST))
    parts = [
        (part["tree"], part["key"], part["chunk"], part["file"], part["sha256"])
        for part in manifest["parts"]
        if str(part["file"]).startswith(f"{kind}/")
    ]
    nonce, key_id = bytes.fromhex(manifest["nonce"]), str(manifest.get("key_id", ""))
    return LeftByRun(folder=folder, nonce=nonce, key_id=key_id, parts=parts)


class Carry(beam.PTransform):
    """The exact counts that the run before carried on.

    The input is the pipeline.

    Args:
        plan: of the run; a single release or a first run carries nothing.
        key: where the release key lies.
        output: the folder of the run.

    Returns:
        PCollection[tuple[PlaceKey, bytes]], each place once that anything is carried on of; and
        the balance PCollection[tuple[str, int]].
    """

    def __init__(self, plan: ReleasePlan, key: KeyReference, output: str) -> None:
        super().__init__()
        self._plan, self._key, self._output = plan, key, output

    def expand(self, pipeline: Any) -> Any:
        left = left_by_run(self._plan, self._output, STATE)
        before = run_before(self._plan)
        if self._plan.keeps_key and self._key.key_id != left.key_id:
            raise SeriesError(
                f"series: {left.folder} was made under the release key {left.key_id}, and this run "
                f"must be too; it is to be made under {self._key.key_id}"
            )
        # The release key may have been rotated since.
        key = self._key.checked(left.key_id)
        opened = (
            pipeline
            | "Sealed" >> beam.Create(left.parts, reshuffle=False)
            # (tree, group, number, file, checksum) -> (PlaceKey, bytes)
            | "Open"
            >> beam.ParDo(_Open(before, key, left.folder, left.nonce)).with_outputs(
                BALANCE, main="counts"
            )
        )
        return opened["counts"], opened[BALANCE]


def carries(plan: ReleasePlan) -> bool:
    """Whether a run goes on with counts of the run before."""
    return any(question.carried_places for question in plan.questions)


@beam.typehints.with_output_types(tuple[tuple[str, int, int], bytes], **{BALANCE: tuple[str, int]})
class _Open(KeyedDoFn):
    """Reads and opens what is carried on of a place."""

    def __init__(self, plan: ReleasePlan, key: KeyReference, folder: str, nonce: bytes) -> None:
        super().__init__(plan, key)
        self._folder, self._nonce = folder, nonce

    def process(self, element: tuple[str, int, int, str, str]) -> Iterator[Any]:
        tree, group, number, file, checksum = element
        sealed = sealed_part(files.join(self._folder, *file.split("/")), checksum)
        question, place = self._plan.question(tree), Place(group, number)
        assert isinstance(question, SeriesQuestion)
        try:
            data = question.opened(place, sealed, self._key, self._plan.name, self._nonce)
        except ValueError:
            raise SeriesError(
                f"series: what {self._folder} carries on was sealed under another release key"
            ) from None
        yield (tree, *place), data
        for name in (tree_partials(tree), tree_carried(tree)):
            yield beam.pvalue.TaggedOutput(BALANCE, (name, 1))


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
