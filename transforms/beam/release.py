"""Releases within a pipeline of Apache Beam."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.beam.adapter import OnBeam
from dptrees.transforms.beam.collection import ReadCollection
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.existing_release import ExistingReleaseError
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import ReadFiles
from dptrees.transforms.release import Release, check_listed
from dptrees.transforms.steps.record import Witness

_LOG = logging.getLogger(__name__)


class ReleaseTrees(beam.PTransform):
    """A Beam transform from rows to a differentially private release in a folder.

    The input is a PCollection of Arrow record batches, dictionaries, `beam.Row` or NamedTuples, or
    the pair of `ReadBatches`, whose balance takes part in the check that no row was lost. For the
    same rows, key and nonce, the files equal the files of the command.

    When the graph is built, the folder gets its nonce and the public universes. If the finished
    release of this specification exists already, the rows are never counted: the rows of today must
    not be compared with the rows of the release.

    Args:
        plan: the plan: the trees, their noise and the guarantee.
        key: the place of the release key. Workers load the key from there. It is loaded here once,
            too, to identify it for the workers, unless the reference identifies it already.
        output: the folder, on any filesystem that Beam supports.
        nonce: the nonce of the folder, only to compare engines or files; None: a new one, or the
            nonce that the folder has.
        repair: make the parts of a finished release again. The job fails if the rows have changed,
            which reveals the change to anyone who can run it.
        witness: a receiver of the record of the draw before any noise is drawn, such as a ledger.
        parameters: public parameters of the configuration; the manifest contains them.
        report: public strings of the page, by name; the manifest contains them.
        request: the request that the plan answers, in plain JSON values; the folder then keeps
            both. None: it keeps neither, and a release is recognized by its specification only.
        schema: the types of the columns of rows, by name; None: from the type of the elements.
            Dictionaries need a schema.
        if_exists: what to do if the folder contains the finished release of this plan. "error":
            raise an error. "use": return its manifest, and count no row, with a warning in the log;
            earlier steps of your pipeline still run.

    Returns:
        PCollection[str]: the path of the manifest, once the release is complete.

    Raises:
        InputError: if the rows are windowed or unbounded, because a release counts all rows once;
            if a column is missing or has a type that cannot be used; or if the plan waits for a
            selection of keys.
        KeyReferenceError: if the key cannot be loaded.
        ExistingReleaseError, NonceError, OutputError: if the folder cannot take this release, or
            contains it already.
        SeriesError: if it is not the turn of this run of a series.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        *,
        key: KeyReference,
        output: str,
        nonce: bytes | None = None,
        repair: bool = False,
        witness: Witness | None = None,
        parameters: Mapping[str, str] | None = None,
        report: Mapping[str, str] | None = None,
        request: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        if_exists: Literal["error", "use"] = "error",
    ) -> None:
        super().__init__()
        if if_exists not in ("error", "use"):
            raise InputError(f"if_exists: {if_exists!r} is not 'error' or 'use'")
        self._if_exists, self._schema = if_exists, schema
        self._release = Release(
            plan,
            key=key,
            output=output,
            nonce=nonce,
            repair=repair,
            witness=witness,
            parameters=parameters,
            report=report,
            request=request,
        )

    def expand(self, rows: Any) -> Any:
        release = self._release
        check_whole(rows[0] if isinstance(rows, tuple) else rows)
        check_listed(release.plan)
        if manifest := release.found():
            if self._if_exists == "error":
                raise ExistingReleaseError(
                    f"output: {release.output} contains the finished release of this plan, so no "
                    'row would be counted: choose another output, or give if_exists="use"'
                )
            _LOG.warning("dptrees: %s contains the release; no row is counted", release.output)
            pipeline = (rows[0] if isinstance(rows, tuple) else rows).pipeline
            return pipeline | "Stands" >> beam.Create([manifest], reshuffle=False)
        release = replace(release.with_key(), is_new=True)
        if not isinstance(rows, tuple):
            read = ReadCollection(release.plan, self._schema)
            plan = replace(release.plan, unit_families=read.unit_families(rows))
            release, rows = replace(release, plan=plan), rows | "Rows" >> read
        return OnBeam(release).expand(rows)


class ReadBatches(OnBeam):
    """The record batches of files, with the columns that a plan reads, for `ReleaseTrees`.

    Args:
        patterns: globs, or folders; all files below a folder are read. They are matched when the
            job starts; a file that changes after that ends the job.
        format: one of `transforms.readers.formats.FORMATS`.
        plan: says which columns are read and which types they may have.
        options: of the reader of the format: ``csv``, a `transforms.readers.csv_format.CsvFormat`,
            or ``json``, a `transforms.readers.json_rows.JsonFormat`.

    Returns:
        a pair: PCollection[pa.RecordBatch], and the balance PCollection[tuple[str, int]].
    """

    def __init__(
        self,
        *,
        patterns: tuple[str, ...],
        format: str,
        plan: ReleasePlan,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(ReadFiles(patterns=patterns, format=format, plan=plan, options=options))


def check_whole(batches: Any) -> None:
    """Refuse rows in windows, or unbounded rows.

    Raises:
        InputError: in one sentence, when the graph is built.
    """
    if not batches.windowing.is_default():
        raise InputError(
            "rows: they are windowed or triggered, but a release counts all rows once: apply "
            "beam.WindowInto(beam.window.GlobalWindows()) before it"
        )
    if not batches.is_bounded:
        raise InputError("rows: they have no end, but a release counts all rows once: bound them")
