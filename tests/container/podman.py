"""Containers of the images that `make container` built, as a strict platform runs them: not root,
no capability, nothing writable but /tmp and what is mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dptrees.dpcore
from tests.container.locks import default_extras, lock_text

PROJECT = Path(__file__).resolve().parents[2]
NAMES = ("worker", "launcher")
# A checkout keeps these packages of dptrees at its top.
PACKAGES = ("dpcore", "transforms", "pipelines")
UID = 10001
# Where the launcher's paths begin; workers have the same files there.
MOUNTED = "/srv/dptrees"
# The limits are named, since a machine of tests may not let any be raised.
STRICT = (
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:rw,mode=1777"),
    *("--cap-drop=all", "--security-opt=no-new-privileges", "--pull=never"),
    *("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"),
)
SECONDS = 400


def image(name: str) -> str:
    """The image of this version.

    >>> image("worker").startswith("localhost/dptrees-worker:")
    True
    """
    return f"localhost/dptrees-{name}:{dptrees.dpcore.__version__}"


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run podman and return what it printed, whatever its exit code."""
    command = ["podman", "--runtime=runc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def missing() -> str:
    """Why no container can be run here; empty where it can."""
    for needed in ("podman", "runc"):
        if shutil.which(needed) is None:
            return f"there is no {needed}"
    if os.geteuid() != 0:
        return "podman runs these images as root only"
    for name in NAMES:
        if podman("image", "exists", image(name)).returncode != 0:
            return f"there is no image {image(name)}: run make container"
        if stale(name):
            return f"{image(name)} is of another state of the project: run make container"
    return ""


def sources(folder: Path) -> dict[str, bytes]:
    """The modules of dptrees, by their paths below it.

    Args:
        folder: of a checkout, or of installed packages.
    """
    places = [(folder / "dptrees", path) for path in (folder / "dptrees").glob("*.py")]
    for package in PACKAGES:
        above = folder if (folder / package).is_dir() else folder / "dptrees"
        places += [(above, path) for path in (above / package).rglob("*.py")]
    return {path.relative_to(above).as_posix(): path.read_bytes() for above, path in places}


def stale(name: str) -> bool:
    """Whether an image has another dptrees than this one, another lock or other extras."""
    with root_of(name) as root:
        if not (root / "opt/dptrees/extras.txt").exists():
            return True
        (packages,) = (root / "opt/dptrees/lib").glob("python3.*/site-packages")
        chosen = default_extras()
        lock = lock_text(packages.parent.name.removeprefix("python"), chosen)
        same = (root / "opt/dptrees/lock.txt").read_text(encoding="utf-8") == lock
        has = (root / "opt/dptrees/extras.txt").read_text(encoding="utf-8").split()
        return not same or has != chosen or sources(packages) != sources(PROJECT)


def run(
    name: str, *arguments: str, files: Path | None = None, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run an image to its end.

    Args:
        name: ``worker`` or ``launcher``.
        arguments: of its entry point.
        files: a folder that is mounted.
        options: of podman.
    """
    mounted = () if files is None else (f"--volume={files}:{MOUNTED}",)
    return podman("run", "--rm", *STRICT, *mounted, *options, image(name), *arguments)


@contextmanager
def running(
    name: str,
    called: str,
    *arguments: str,
    files: Path | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[str]:
    """A container that runs until it is left."""
    options = ("--detach", f"--name={called}", *options)
    started = run(name, *arguments, files=files, options=options)
    assert started.returncode == 0, started.stderr
    try:
        yield called
    finally:
        podman("kill", called)
        podman("wait", called)


@contextmanager
def root_of(name: str) -> Iterator[Path]:
    """The files of an image."""
    mounted = podman("image", "mount", image(name))
    assert mounted.returncode == 0, mounted.stderr
    try:
        yield Path(mounted.stdout.strip())
    finally:
        podman("image", "umount", image(name))
