"""``dptrees release``: the job from configuration to committed release."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.runners.runner import create_runner

from dpcore.noise.randomness import key_id_of
from dpcore.questions.tables import CDF, NODES
from dpcore.release.plan import ReleasePlan
from pipelines.configuration import Configuration, load_configuration
from pipelines.progress_bar import progress_bar
from pipelines.proof.check import findings_of
from pipelines.proof.signature import SigningKey, sign_release
from pipelines.proof.verifying import Verified, raise_first
from pipelines.release_folder import ReleaseFolder
from pipelines.reporting import REPORT, write_report
from pipelines.summary import print_summary
from pipelines.terminal_text import print_line
from pipelines.user_error import UserError
from transforms import files
from transforms.bound import unit_shards_of
from transforms.commit import check_committed
from transforms.errors import InputError, sentence_in
from transforms.key_reference import KeyReference
from transforms.layout import MANIFEST, SIGNATURE, planned_parts
from transforms.nonce import key_id_of_folder
from transforms.readers import csv_rows, parquet_rows
from transforms.readers.read import ReadBatches, match_files, open_file
from transforms.record import Witness
from transforms.release import ReleaseTrees
from transforms.standing import read_manifest, stands
from transforms.sweep import (
    begun,
    begun_without_record,
    discard,
    missing_files,
    sweep_temporary,
    sweep_unnamed,
)
from transforms.universe_file import share_universes

if TYPE_CHECKING:
    from pipelines.ledger.booking import Booking

# In this process, one bundle at a time: Beam's modes with several local workers were measured to
# lose elements of large inputs, and its default runner reruns a failed job on another one.
LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_LOCAL_RUNNERS = {"direct", "switchingdirect"}
_REFUSED_RUNNERS = {
    "dask": "it was measured to leave out parts of a job without an error",
    "interactive": "it keeps copies of the exact counts",
}
_REFUSED_EXPERIMENTS = ("enable_data_sampling", "enable_always_on_exception_sampling")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked of a folder beside the release itself.

    Args:
        nonce: fixes the folder's nonce, only to compare engines or files.
        repair: make the parts of a finished release again from the same rows.
        discard: delete the beginning of a release, and spend its budget anew.
    """

    nonce: bytes | None = None
    repair: bool = False
    discard: bool = False


def run_release(
    path: str,
    arguments: list[str],
    wanted: Wanted | None = None,
    given: Mapping[str, str] | None = None,
) -> int:
    """Makes the release that a configuration describes, or sees that it is already there.

    Where its folder holds the finished release of the same specification, no row is read: whether
    the rows are still the same is nobody's to learn from a second run.

    Args:
        path: of the YAML file.
        arguments: Beam options.
        wanted: of the folder.
        given: parameters of the configuration, by name.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to mend.
    """
    wanted = wanted or Wanted()
    configuration = load_configuration(path, given)
    plan, output = configuration.plan(), configuration.output
    options = beam_options(arguments)
    files.use_options(options)
    if configuration.id_of_all:
        print_line(configuration.id_remark, file=sys.stderr)
    booking = _booking(configuration, plan)
    plan = booking.plan if booking else plan
    if _check_output(output, plan, wanted) and _check_parameters(configuration, output, wanted):
        _check_standing(output, wanted)
        if booking:
            booking.settled()
        print_line(
            f"{output}: a release of this specification is already there; no row was read, and "
            "nothing was drawn or spent again"
        )
        return _finish(configuration, plan, booking, standing=True)
    if configuration.signing_key is not None:
        SigningKey(reference=configuration.signing_key).load()  # seen before a row is read
    key = configuration.key.checked(None if wanted.discard else _begun_under(output, booking))
    _check_filesystems(configuration.input_paths)
    matched = match_files(configuration.input_paths)
    _check_first_file(configuration, plan, matched[0][0])
    _check_wanted(output, plan, wanted)
    witness = None
    if booking:
        entry = booking.entry(key, nonce=wanted.nonce, discard=wanted.discard)
        wanted, witness = replace(wanted, nonce=entry.nonce_bytes), booking.witness(entry)
    _clear(output, wanted, reserved=booking is not None)
    parts = sum(1 for _ in planned_parts(plan))
    # Elsewhere the workers are other processes: what they wrote is looked for.
    elsewhere = options.view_as(StandardOptions).runner != LOCAL_RUNNER
    present = partial(_parts_present, output) if elsewhere else None
    with progress_bar(sum(size for _, size in matched), parts, present):
        _run(configuration, plan, key, options, wanted, witness)
    if wanted.repair:
        _check_repaired(output)
    if booking:
        booking.settled()
    return _finish(configuration, plan, booking, standing=False)


def beam_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the runner named and what would break the guarantee refused.

    Raises:
        UserError: a runner or an option that cannot be used.
    """
    _check_arguments(arguments)
    options = PipelineOptions(arguments)
    standard = options.view_as(StandardOptions)
    standard.runner = _named_runner(standard.runner or "")
    for experiment in options.view_as(DebugOptions).experiments or []:
        if experiment.startswith(_REFUSED_EXPERIMENTS):
            raise UserError(f"--experiments={experiment}: refused, since it shows rows")
    options.view_as(SetupOptions).save_main_session = False
    unit_shards_of(options)  # refuses what is out of range
    return options


def _named_runner(name: str) -> str:
    """The runner to use. Beam reads names in any case, with or without the word Runner."""
    short = name.split(".")[-1].lower().removesuffix("runner")
    if short in _REFUSED_RUNNERS:
        raise UserError(f"--runner={name}: refused, since {_REFUSED_RUNNERS[short]}")
    if not name or short in _LOCAL_RUNNERS:
        return LOCAL_RUNNER
    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError):
        known = ", ".join(StandardOptions.KNOWN_RUNNER_NAMES)
        raise UserError(
            f"--runner={name}: Beam knows no such runner, or it is not installed; known are {known}"
        ) from None
    return name


class _ArgumentParser(_BeamArgumentParser):
    """Beam's options as Beam reads them, but telling a mistake in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


def _check_arguments(arguments: list[str]) -> None:
    """Refuses what Beam would drop without a word, and values that it cannot read."""
    parser = _ArgumentParser(allow_abbrev=False)
    for kind in PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    unknown = parser.parse_known_args(arguments)[1]
    # A job server has options of its own, which it describes when it gets the job.
    served = any(name.startswith(("--job_endpoint", "--job-endpoint")) for name in arguments)
    if unknown and not (served and unknown[0].startswith("--")):
        raise UserError(f"{unknown[0]}: is no option of dptrees release nor of Beam")


def _check_filesystems(paths: tuple[str, ...]) -> None:
    """Refuses paths of filesystems that Beam does not know here."""
    for path in paths:
        try:
            FileSystems.get_filesystem(path)
        except (ValueError, BeamIOError):
            raise UserError(
                f"{path}: Beam has no filesystem for it here, or it lacks an option "
                "(gs:// needs dptrees[gcp] installed, s3:// dptrees[aws])"
            ) from None


def _check_first_file(configuration: Configuration, plan: ReleasePlan, path: str) -> None:
    """Sees before the job starts that the columns are there and of the right types."""
    reader = {"parquet": parquet_rows, "csv": csv_rows}[configuration.input_format]
    reader.splits(open_file(path), path, plan, **configuration.input_options)


def _check_output(output: str, plan: ReleasePlan, wanted: Wanted) -> bool:
    """Whether the output already holds a release of this very specification.

    Raises:
        UserError: it holds another release, is a file, or cannot be written.
    """
    _check_filesystems((output,))
    if files.is_local(output) and os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output: {output} is not a folder")
    if stands(output, plan):
        _check_nonce(output, wanted)
        return True
    if files.is_local(output) and not _writable(output):
        raise UserError(f"output: {output} cannot be written: permission denied")
    return False


def _check_standing(output: str, wanted: Wanted) -> None:
    """Sees that a finished release is whole, and that nothing was asked that it cannot take.

    Raises:
        UserError: files are missing.
        StandingError: the release is to be discarded.
    """
    if wanted.discard:
        discard(output)  # refused
    folder = ReleaseFolder(output)
    missing = missing_files(output, folder.files)
    if missing:
        raise UserError(
            f"{output}: {missing[0]} is missing, of {len(folder.files)} files of the release "
            f"{len(missing)} in all; --repair makes them again from the same rows"
        )


def _check_parameters(configuration: Configuration, output: str, wanted: Wanted) -> bool:
    """Sees that a finished release is of the same parameters, which may name other rows. Whether it
    is to stay as it is.

    Raises:
        UserError: it is of others.
    """
    found = read_manifest(files.join(output, MANIFEST)).get("parameters", {})
    if found != configuration.parameters:
        told = ", ".join(f"{name} = {value}" for name, value in sorted(found.items())) or "none"
        raise UserError(
            f"output: {output} holds the release of other parameters ({told}); choose another "
            "output, by a parameter in its path"
        )
    return not wanted.repair


def _check_nonce(output: str, wanted: Wanted) -> None:
    """Sees that a finished release has the nonce that was asked for.

    Raises:
        UserError: it has another.
    """
    found = read_manifest(files.join(output, MANIFEST)).get("nonce")
    if wanted.nonce is not None and found != wanted.nonce.hex():
        raise UserError(f"nonce: {output} holds a release with another nonce")


def _check_repaired(output: str) -> None:
    """Sees that a repair brought back what was missing.

    Raises:
        UserError: it wrote other bytes, as another version of a library does.
    """
    folder = ReleaseFolder(output)
    if missing := missing_files(output, folder.files):
        raise UserError(
            f"{output}: {missing[0]} is still missing: this installation writes other bytes than "
            f"the one that made the release, dptrees {folder.manifest.get('dptrees')}; repair it "
            "with that one and its pyarrow"
        )


def _booking(configuration: Configuration, plan: ReleasePlan) -> Booking | None:
    """The ledger's part in a release; None without one."""
    if configuration.ledger is None:
        return None
    from pipelines.ledger.booking import Booking  # slow to import, and not always needed

    return Booking.of(configuration, plan)


def _begun_under(output: str, booking: Booking | None) -> str | None:
    """The id of the key under which a release was begun, as its folder tells, or else its ledger;
    None where it was not."""
    found = key_id_of_folder(output)
    if found is None and booking:
        entry = booking.ledger.standing(booking.dataset, booking.plan.name)
        return None if entry is None else key_id_of(bytes.fromhex(entry.key))
    return found


def _check_wanted(output: str, plan: ReleasePlan, wanted: Wanted) -> None:
    """Sees that the folder can take what is asked of it.

    Raises:
        UserError: there is no release to repair, or nothing tells whose parts lie there.
    """
    if wanted.repair and not stands(output, plan):
        raise UserError(
            f"--repair: {output} holds no finished release; run without it to finish one"
        )
    if not (wanted.repair or wanted.discard) and begun_without_record(output):
        raise UserError(
            f"output: {output} holds parts of a release without record.json, so nothing tells "
            "whether this run would draw them again; choose another output, or start anew with "
            "--discard"
        )


def _clear(output: str, wanted: Wanted, *, reserved: bool) -> None:
    """Clears the folder where that is asked.

    Args:
        reserved: there is a ledger, where something may be discarded whose folder is gone.

    Raises:
        StandingError: there is a finished release, which is not discarded, or nothing is there.
    """
    if wanted.discard:
        if begun(output) or not reserved:
            discard(output)
        print_line(f"{output}: what a run began is discarded; what it drew counts as spent")


def _writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written into."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return os.access(nearest, os.W_OK | os.X_OK)


def run_job(read: ReadBatches, release: ReleaseTrees, options: PipelineOptions) -> None:
    """Runs the job of a release, and tells its failure in one sentence where it has one.

    Args:
        read: gives its rows.
        release: what becomes of them.
        options: Beam's.

    Raises:
        InputError: the job failed for a reason that its user can mend.
    """
    try:
        with beam.Pipeline(options=options) as pipeline:
            # Of transforms in other languages, and empty: a process that is killed would leave it.
            with suppress(OSError):
                os.rmdir(pipeline.local_tempdir)
            pipeline | "Read" >> read | "Release" >> release
    except Exception as error:
        sentence = sentence_in(f"{error} {error.__cause__ or ''}")
        if sentence is None:
            raise
        raise InputError(sentence) from None


def _run(
    configuration: Configuration,
    plan: ReleasePlan,
    key: KeyReference,
    options: PipelineOptions,
    wanted: Wanted,
    witness: Witness | None,
) -> None:
    """Builds and runs the job of a configuration."""
    output = files.absolute(configuration.output)
    for question in plan.questions:
        question.prepare()  # before the plan is copied
    plan = share_universes(plan, output)
    read = ReadBatches(
        patterns=tuple(map(files.absolute, configuration.input_paths)),
        format=configuration.input_format,
        options=configuration.input_options,
        plan=plan,
    )
    release = ReleaseTrees(
        plan,
        key=key,
        output=output,
        nonce=wanted.nonce,
        repair=wanted.repair,
        witness=witness,
        parameters=configuration.parameters,
    )
    run_job(read, release, options)
    check_committed(output)


def _finish(
    configuration: Configuration, plan: ReleasePlan, booking: Booking | None, *, standing: bool
) -> int:
    """Clears what is no part of the release, signs it, writes the report and tells what there
    is."""
    output = configuration.output
    if configuration.signing_key is not None:
        if standing and not files.exists(files.join(output, SIGNATURE)):
            # It may have been edited since it was made.
            raise_first(f"{output}: not signed", findings_of(Verified(output).of_manifest()))
        sign_release(output, SigningKey(reference=configuration.signing_key), made=not standing)
    folder = ReleaseFolder(output)
    sweep_unnamed(output, plan)
    sweep_temporary(output)
    report = files.join(output, REPORT)
    if not standing or not files.exists(report):
        write_report(output)
    print_summary(folder, report, booking.account.line if booking else None)
    return 0


def _parts_present(output: str) -> int:
    """How many parts lie in the output."""
    return sum(1 for kind in (NODES, CDF) for _ in files.names_below(files.join(output, kind)))
