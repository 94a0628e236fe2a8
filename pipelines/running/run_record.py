"""The time and the versions of a run: a file beside the folder, and no part of the release.

    out/adult.run.json               beside the release out/adult
    out/daily.period-0001.run.json   beside the series out/daily

Times depend on the number of rows, as in every program. So the file is outside the folder that is
published, for the operator alone (docs/exit-codes.md).
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from dptrees.dpcore import __version__
from dptrees.pipelines.faults.log import LOG, event, remark
from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import OutputError

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
