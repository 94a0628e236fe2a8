"""A replay of a release from its rows, key and nonce, compared with the release bit for bit.

Floats are compared to a tolerance where their last digits depend on the processor. The replay is
made in this process and held in its memory, so nothing is left when it is killed. Equality is an
exact test of whether the release was made from these rows, which no budget bounds: it is only
for people with access to the raw data and the key.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as pq

from dptrees.dpcore import __version__
from dptrees.dpcore.choices.value_bounds import EarlierBoundsQuestion
from dptrees.dpcore.release.manifest import CHECKSUM, LATER_NUMBERS
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import Configuration, load_configuration
from dptrees.pipelines.proof.check import CheckFailed
from dptrees.pipelines.proof.manifest import first_difference, is_exact, plain
from dptrees.pipelines.proof.verified import Verified
from dptrees.pipelines.run.first_stage import selected_keys
from dptrees.pipelines.run.job import job_options, run_job
from dptrees.pipelines.run.planned_once import changed_key
from dptrees.pipelines.run.stage import table_rows
from dptrees.pipelines.sections.parameters import CONFIGURATIONS
from dptrees.transforms.folder import files
from dptrees.transforms.folder.listing import match_files
from dptrees.transforms.folder.names import MANIFEST, SHARED_NAMES
from dptrees.transforms.folder.universe import share_universes
from dptrees.transforms.held import HELD_FILES, KEPT_FILES, KEPT_SCHEME, SCHEME
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.formats import format_of_names
from dptrees.transforms.readers.read import ReadFiles
from dptrees.transforms.release import Release
from dptrees.transforms.steps.kept_plan import KeptPlanError, check_seal, find_drawn
from dptrees.transforms.steps.record import check_committed
from dptrees.transforms.tables.table import InputTable

# Of floats in specifications: a release that keeps no request may be of another processor.
_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Where the rows of a release lie.

    Args:
        paths: files, folders or globs.
        format: one of `transforms.readers.formats.FORMATS`.
        options: of the reader.
        table: that they lie in, in place of files.
    """

    paths: tuple[str, ...]
    format: str
    options: Mapping[str, Any]
    table: InputTable | None = None


def rows_of_configuration(
    configuration: Configuration, manifest: Mapping[str, Any], folder: str, key: KeyReference
) -> Rows:
    """The rows of a configuration, seen to be that of the release.

    Args:
        configuration: with its keys, where these were selected.
        manifest: of the release.
        folder: of the release, which may keep the plan and its request.
        key: where the release key lies.

    Raises:
        CheckFailed: it is another release's.
        ConfigurationError: it cannot be planned.
    """
    # Where it does not say which data set of its ledger, the ledger did.
    of_ledger = manifest["spec"].get("dataset") if configuration.ledger else None
    dataset = configuration.dataset or of_ledger
    if dataset != manifest["spec"].get("dataset") or not _answers(configuration, folder, key):
        expected = plain(replace(configuration.plan(), dataset=dataset).spec())
        if place := first_difference(
            expected, manifest["spec"], "spec", tolerance=_TOLERANCE, rationals=True
        ):
            raise CheckFailed(f"{configuration.source} describes another release: {place} differs")
    if dict(configuration.parameters) != manifest.get("parameters", {}):
        raise CheckFailed(f"{configuration.source} has other parameters than the release")
    return Rows(
        paths=configuration.input_paths,
        format=configuration.input_format,
        options=configuration.input_options,
        table=configuration.table,
    )


def _answers(configuration: Configuration, folder: str, key: KeyReference) -> bool:
    """Whether a release keeps its plan, sealed, as the answer to the request of a configuration."""
    kept = find_drawn(folder)
    if kept is None or changed_key(configuration, kept.request):
        return False
    with suppress(KeptPlanError):  # then its plan is compared with one that is made now
        check_seal(folder, kept, key)
        return True
    return False


def rows_of_files(paths: Sequence[str], dialect: Mapping[str, Any] | None = None) -> Rows:
    """The rows of files that are named themselves, of the format that all are called by.

    Args:
        paths: of them.
        dialect: of the release's specification, which only CSV has.

    Raises:
        CheckFailed: this program does not know the dialect.
    """
    format = "csv" if dialect else format_of_names(paths)
    options: dict[str, Any] = {}
    if format == "csv":
        try:
            options["csv"] = CsvFormat.from_spec(dialect or {})
        except ValueError as error:
            raise CheckFailed(f"spec.dialect.{error}") from None
    return Rows(paths=tuple(paths), format=format, options=options)


def check_replay(
    manifest: Mapping[str, Any], plan: ReleasePlan, rows: Rows, key: KeyReference, folder: str
) -> str:
    """The release of these rows is, bit for bit, the one that the manifest describes.

    Args:
        manifest: whose files were seen to have the bytes that it names.
        plan: of its specification.
        rows: where they lie.
        key: where its key lies.
        folder: of the release, beside which lies what a run of a series goes on from.

    Raises:
        CheckFailed: it is another one.
        ReleaseError: the rows cannot be read.
    """
    # Parts whose floats may differ are compared themselves, others by their checksums.
    held, scheme = (HELD_FILES, SCHEME) if is_exact(manifest) else (KEPT_FILES, KEPT_SCHEME)
    place = f"{scheme}://{uuid.uuid4().hex}/release"
    plan = share_universes(plan, place)
    nonce, parameters = bytes.fromhex(manifest["nonce"]), manifest.get("parameters")
    release = Release(plan, key=key, output=place, nonce=nonce, parameters=parameters, again=folder)
    try:
        with table_rows(rows.table) as source:
            read = _read_files(rows, plan) if source is None else source.reading(plan)
            run_job(read, release, job_options([]))
        check_committed(place)
    finally:
        made = held.taken(place)
    again = {name: data for name, (_, data) in made.items()}
    return _Comparison(manifest=manifest, folder=folder, again=again).result()


def _read_files(rows: Rows, plan: ReleasePlan) -> ReadFiles:
    match_files(rows.paths)
    return ReadFiles(
        patterns=tuple(map(files.absolute, rows.paths)),
        format=rows.format,
        options=rows.options,
        plan=plan,
    )


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """A comparison of a release with its replay.

    Floats are compared bit for bit where both have one arithmetic. In earlier releases their last
    digits depend on the processor that made them, so they are compared to a relative 1e-9 (near 0
    to 1e-9 of a row); integers, labels and the record are compared exactly in every release.

    Args:
        manifest: of the release.
        folder: that holds it.
        again: the files that were made again, by name.
    """

    manifest: Mapping[str, Any]
    folder: str
    again: Mapping[str, bytes]

    @property
    def _is_exact(self) -> bool:
        return is_exact(self.manifest)

    def result(self) -> str:
        """What is the same, in words.

        Raises:
            CheckFailed: something differs.
        """
        made = json.loads(self.again[MANIFEST])
        if self.manifest["record"] != made["record"]:
            raise CheckFailed(
                "the release was not made from these rows (or another program counts them "
                "differently): the record differs"
            )
        for stated, again in zip(self.manifest["parts"], made["parts"], strict=True):
            if stated != again and not self._is_near(stated["file"], again["file"]):
                raise _other_bytes(str(stated["file"]), self.manifest)
        # Universes and keys lie in a release as they were written, by anyone: they were
        # compared.
        for name, checksum in self.manifest["files"].items():
            if SHARED_NAMES.fullmatch(name) or made["files"].get(name) == checksum:
                continue
            if name not in made["files"] or not self._is_near(name, name):
                raise _other_bytes(name, self.manifest)
        self._check_entries(made)
        if self._is_exact:
            return "parts, tables and record are the same, bit for bit"
        return "record, counts and labels are the same; estimates and intervals to a relative 1e-9"

    def _check_entries(self, made: Mapping[str, Any]) -> None:
        # Earlier checks compared the trees' entries with the specification, up to the rounding of
        # floats. Families of types come from the heads of files, which a replay does not look at.
        apart = {CHECKSUM, "files", "trees", "unit_families"}
        if self.manifest["dptrees"] != __version__:
            apart.add("dptrees")
        if not self._is_exact:
            apart |= {"arithmetic", "parts"}
        expected, found = (_without(each, apart) for each in (made, self.manifest))
        stated = self.manifest["guarantee"]
        earlier = {name for name in LATER_NUMBERS if name not in stated}
        expected = {**expected, "guarantee": _without(expected["guarantee"], earlier)}
        tolerance = 0.0 if self._is_exact else _TOLERANCE
        if place := first_difference(expected, found, "manifest", tolerance=tolerance):
            raise CheckFailed(f"{place} differs when the release is made again")

    def _is_near(self, stated: str, again: str) -> bool:
        """Whether a table has the same integers and labels, and nearly the same floats."""
        if self._is_exact or not stated.endswith(".parquet"):
            return False
        data = (files.read_bytes(files.join(self.folder, stated)), self.again[again])
        one, other = (pq.read_table(pyarrow.BufferReader(each)) for each in data)
        return bool(
            one.schema.equals(other.schema)
            and one.num_rows == other.num_rows
            and all(map(_near_columns, one.columns, other.columns))
        )


def _near_columns(one: pyarrow.ChunkedArray, other: pyarrow.ChunkedArray) -> bool:
    if not pyarrow.types.is_floating(one.type):
        return bool(one.equals(other))
    if not one.is_null().equals(other.is_null()):
        return False
    stated, again = (each.to_numpy() for each in (one, other))
    # Ends of intervals near 0 are small differences of numbers of rows.
    return bool(np.allclose(stated, again, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _without(manifest: Mapping[str, Any], apart: set[str]) -> Any:
    return plain({name: value for name, value in manifest.items() if name not in apart})


def _other_bytes(name: str, manifest: Mapping[str, Any]) -> CheckFailed:
    return CheckFailed(
        f"{name} differs when it is made again with the same rows and noise: it was edited, or "
        f"dptrees {manifest['dptrees']} ran with other libraries than dptrees {__version__} with "
        f"pyarrow {pyarrow.__version__} here"
    )


def replayed(
    release: Verified,
    data: Sequence[str],
    parameters: Mapping[str, str],
    reference: KeyReference | None,
) -> str:
    """The release of these rows under its key is this one, bit for bit.

    Args:
        release: the release.
        data: one configuration, or files of the rows.
        parameters: of the configuration.
        reference: the key; None: the one of the configuration.
    """
    if data[0].endswith(CONFIGURATIONS):
        configuration = load_configuration(data[0], parameters)
        if configuration.chooses_bounds and release.plan.bounds is not None:
            configuration = configuration.with_chosen(release.plan.bounds)
        if release.has_stage and configuration.selections:
            actual = selected_keys(release.stage.folder, configuration)
            configuration = replace(configuration, selected=actual)
        reference = reference or configuration.key
        folder = files.absolute(release.folder)
        rows = rows_of_configuration(configuration, release.manifest, folder, reference)
    else:
        rows = rows_of_files(data, release.manifest["spec"].get("dialect"))
    assert reference is not None
    # First stages are made again first: the bounds and the keys of the trees were compared with
    # theirs.
    noted = ""
    for each in (*release.first_stages, release):
        if any(isinstance(tree, EarlierBoundsQuestion) for tree in each.plan.questions):
            noted = "; the first stage is of an earlier version, and was not made again"
            continue
        key = reference.checked(each.manifest["key_id"])
        reason = check_replay(each.manifest, each.plan, rows, key, files.absolute(each.folder))
    return reason + noted
