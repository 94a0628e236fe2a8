"""The output of a release: its folder's content against the request, its run record, a job's jar.

    out/adult.run.json               beside the release out/adult
    out/daily.period-0001.run.json   beside the series out/daily

Times depend on the number of rows, so the run record is outside the folder that is published,
for the operator alone (docs/exit-codes.md). A job may be written as a jar, or described for a
cluster or a template launcher, in place of being run.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from dptrees.dpcore import __version__
from dptrees.dpcore.release.manifest import CHECKSUM
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.monitoring import LOG, event, remark
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.report.summary import REPORT
from dptrees.pipelines.run.job import Options, check_filesystems
from dptrees.pipelines.sections.first_stages import BOUNDS_FOLDER as BOUNDS
from dptrees.pipelines.sections.first_stages import KEYS_FOLDER as SELECTION
from dptrees.pipelines.terminal_text import print_json, print_line
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    begun,
    begun_without_record,
    check_discardable,
    discard,
    drawn,
    is_released,
    missing_files,
    read_manifest,
    strangers,
)
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.folder.layout import PART_KINDS
from dptrees.transforms.folder.names import MANIFEST, TO_DATE

SUFFIX = ".run.json"
FORMAT = 1
# On which the bytes of a release depend, or how fast it is made.
PACKAGES = ("apache-beam", "cryptography", "numpy", "pyarrow", "scipy")


@dataclass(kw_only=True)
class RunRecord:
    """The steps of a run, as they are taken.

    Args:
        runner: of Beam, by its name.

    Attributes:
        steps: name, folder and seconds of each.
    """

    runner: str = ""
    begun: float = field(default_factory=time.time)
    steps: list[dict[str, object]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, folder: str) -> Iterator[None]:
        """Measure a step, and report to listening programs when it begins and ends."""
        event("began", step=name, folder=folder)
        start = time.monotonic()
        yield
        seconds = round(time.monotonic() - start, 3)
        self.steps.append({"name": name, "folder": folder, "seconds": seconds})
        event("done", step=name, folder=folder, seconds=seconds)

    def claim(self, output: str, manifest: object, *, in_series: bool = False) -> bool:
        """Begin the record of a run that made a release, unless another run of the same release
        did: of two launchers at once both write it, and one has made it.

        Args:
            output: as of `write`.
            manifest: likewise.
            in_series: likewise.

        Returns:
            whether this run has made it; also where no record can be written.
        """
        path = _path(output, in_series=in_series)
        try:
            if files.write_once(path, self._entries(output, manifest), private=True):
                return True
            found = json.loads(files.read_bytes(path))
        except (OutputError, OSError, ValueError):
            return True
        # A record of a release that was there before it is of another one.
        return not (isinstance(found, dict) and found.get("manifest") == manifest)

    def write(self, output: str, manifest: object, *, in_series: bool = False) -> None:
        """Writes the record of a run that made a release; where it cannot be, that is remarked: the
        release is there.

        Args:
            output: the folder of the release.
            manifest: its checksum.
            in_series: that folder lies in the one of its series.
        """
        path = _path(output, in_series=in_series)
        try:
            files.write_whole(path, self._entries(output, manifest), private=True)
        except (OutputError, OSError):
            remark(f"{path}: the times of this run cannot be written; the release is complete")

    def _entries(self, output: str, manifest: object) -> bytes:
        now = time.time()
        entries = {
            "format": FORMAT,
            **({"run": LOG.run} if LOG.run else {}),
            "folder": output,
            "manifest": manifest,
            "started": _moment(self.begun),
            "finished": _moment(now),
            "seconds": round(now - self.begun, 3),
            "steps": self.steps,
            "runner": self.runner,
            "versions": versions(),
        }
        return (json.dumps(entries, indent=1) + "\n").encode()


def _path(output: str, *, in_series: bool) -> str:
    path = output.rstrip("/")
    if in_series:  # not in what is published
        path = ".".join(path.rsplit("/", 1))
    # A folder of its own is needed to write in one step: of a bare name, the one we are in.
    return files.absolute(path + SUFFIX)


def versions() -> dict[str, str]:
    """The versions of what a release is made with."""
    result = {"dptrees": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            continue
    return result


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


# Beside the files of a job: the page, and the times and versions of a run.
_OWN = (REPORT, "run.json")
_FOLDERS = (*PART_KINDS, TO_DATE, SELECTION, BOUNDS)


@dataclass(frozen=True, kw_only=True)
class FolderRequest:
    """Options of a run that concern its output folder.

    Args:
        nonce: fixes the folder's nonce, only to compare engines or files.
        repair: make the parts of a finished release again from the same rows.
        discard: delete the beginning of a release, and spend its budget anew.
    """

    nonce: bytes | None = None
    repair: bool = False
    discard: bool = False


def check_output(output: str, plan: ReleasePlan, request: FolderRequest) -> bool:
    """Whether the output already holds a release of this very specification.

    Raises:
        UserError: it holds another release, is a file, or cannot be written.
    """
    check_filesystems((output,))
    if files.is_local(output) and os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output: {output} is not a folder")
    if is_released(output, plan):
        _check_nonce(output, request)
        return True
    if files.is_local(output) and not _writable(output):
        raise UserError(f"output: {output} cannot be written: permission denied")
    return False


def check_released(output: str, request: FolderRequest) -> None:
    """Check that a finished release is complete, and that the request is possible for it.

    Raises:
        UserError: files are missing.
        ExistingReleaseError: the release is to be discarded.
    """
    if request.discard:
        check_discardable(output)  # refused
    folder = ReleaseFolder(output)
    missing = missing_files(output, folder.files)
    if missing:
        raise UserError(
            f"{output}: {missing[0]} is missing, of {len(folder.files)} files of the release "
            f"{len(missing)} in all; --repair makes them again from the same rows"
        )


def check_parameters(configuration: Configuration, output: str, request: FolderRequest) -> bool:
    """Sees that a finished release is of the same parameters, which may name other rows. Whether it
    is to stay as it is.

    Raises:
        UserError: it is of others.
    """
    manifest = read_manifest(files.join(output, MANIFEST)).get("parameters", {})
    if manifest != configuration.parameters:
        listed = (
            ", ".join(f"{name} = {value}" for name, value in sorted(manifest.items())) or "none"
        )
        raise UserError(
            f"output: {output} contains a release with other parameters ({listed}); choose "
            "another output, for example with a parameter in its path"
        )
    return not request.repair


def _check_nonce(output: str, request: FolderRequest) -> None:
    """Check that a finished release has the requested nonce.

    Raises:
        UserError: it has another.
    """
    manifest = read_manifest(files.join(output, MANIFEST)).get("nonce")
    if request.nonce is not None and manifest != request.nonce.hex():
        raise UserError(f"nonce: {output} contains a release with another nonce")


def check_repaired(output: str) -> None:
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


def check_repairable(output: str, request: FolderRequest) -> None:
    """Refuses to repair what is not finished.

    Raises:
        UserError: it is to be repaired.
    """
    if request.repair:
        raise UserError(
            f"--repair: {output} contains no finished release; run without it to finish one"
        )


def check_folder(output: str, plan: ReleasePlan, request: FolderRequest) -> None:
    """Check that the folder allows the request.

    Raises:
        UserError: there is no release to repair, the folder holds something that is no part of
            one, or nothing shows which release its parts are from.
    """
    if not is_released(output, plan):
        check_repairable(output, request)
        if not drawn(output):  # what is begun is finished, whatever came to lie beside it
            _check_own(output)
    if not (request.repair or request.discard) and begun_without_record(output):
        raise UserError(
            f"output: {output} contains parts of a release without record.json, so nothing shows "
            "whether this run would draw the same noise again; choose another output, or start "
            "again with --discard"
        )


def clear_output(output: str, request: FolderRequest, *, reserved: bool) -> None:
    """Clear the folder where that is requested.

    Args:
        reserved: there is a ledger, which may hold a reservation whose folder is gone.

    Raises:
        ExistingReleaseError: there is a finished release, which is not discarded, or nothing is
            there.
    """
    if request.discard:
        if begun(output) or not reserved:
            discard(output)
        print_line(
            f"{output}: the files of an interrupted run are deleted; its budget counts as spent"
        )


def _check_own(output: str) -> None:
    """Sees that nothing lies in the folder that would be published with the release.

    Raises:
        UserError: something does that is no part of one.
    """
    found = strangers(output, _OWN)
    if files.is_local(output) and os.path.isdir(output):
        with os.scandir(output) as entries:
            folders = (entry.name for entry in entries if entry.is_dir())
            found += sorted(name for name in folders if name not in _FOLDERS and name[0] != ".")
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UserError(
            f"output: {output} holds {found[0]}{more}, which does not belong to a release; choose "
            "a new or empty folder"
        )


def _writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written into."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return os.access(nearest, os.W_OK | os.X_OK)


OPTION = "--output_executable_path"
# Whose job servers write jars.
_RUNNERS = ("portable", "flink", "spark")


def check_job_jar(options: Options, configuration: Configuration, request: FolderRequest) -> None:
    """Refuses a jar of what is no single job, or that nobody would write.

    Args:
        options: of the job.
        configuration: of the release.
        request: of its folder.

    Raises:
        UserError: a jar is wanted where there can be none.
    """
    jar = options.jar
    if not jar:
        return
    runner = options.runner.split(".")[-1].lower()
    if runner.removesuffix("runner") not in _RUNNERS:
        raise UserError(
            f"{OPTION}={jar}: needs --runner=FlinkRunner or SparkRunner, whose job servers write it"
        )
    if configuration.selection is not None:
        raise UserError(f"{OPTION}={jar}: private keys need two jobs, but a jar contains one")
    if configuration.chooses_bounds:
        raise UserError(f"{OPTION}={jar}: chosen bounds need two jobs, but a jar contains one")
    if request.repair:
        raise UserError(
            f"{OPTION}={jar}: cannot be used with --repair, which checks the files when the job "
            "has ended"
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(jar))):
        raise UserError(f"{OPTION}={jar}: there is no such folder")


_THEN = (
    "after it has run, the same command signs the release, completes the ledger and writes the page"
)


def described_job(options: Options) -> str:
    """What there is of a job that nothing has run yet, in words; "" where the job is run.

    Args:
        options: of the job.
    """
    if jar := options.jar:
        return f"{jar}: contains the job, which has not run; {_THEN}"
    return f"the job is written, but has not run; {_THEN}" if options.submits_only else ""


def check_described(options: Options, configuration: Configuration) -> None:
    """Refuses to describe a job that could not run once this command has ended.

    Args:
        options: of the job.
        configuration: of the release.

    Raises:
        UserError: it reads what this command holds.
    """
    if configuration.table is not None and configuration.table.held and described_job(options):
        raise UserError(
            f"input: the state of {configuration.table.name} lasts as long as this command, and "
            "the job runs without it; write it to files"
        )


def print_made(folder: ReleaseFolder, *, made: bool, account: str | None) -> None:
    """Print what was written; nothing that the manifest does not hold.

    Args:
        folder: the release.
        made: whether this run made it; otherwise it existed already.
        account: the ledger's account of its data set; None without a ledger.
    """
    manifest = folder.manifest
    trees = [{"name": each.name, "kind": each.kind} for each in folder.plan.questions]
    print_json(
        {
            "release": folder.plan.name,
            "folder": folder.path,
            "made": made,
            "manifest": {
                "file": files.join(folder.path, MANIFEST),
                "checksum": manifest.get(CHECKSUM),
            },
            "guarantee": manifest["guarantee"],
            "ledger": account,
            "trees": trees,
            "files": folder.files,
            "report": files.join(folder.path, REPORT),
        },
        indent=1,
    )
