"""Keep downloads and builds in the user's cache folder, for every clone of the project.

    python3 .ci/cache.py NAME PLACE [--input FILE]... [--text TEXT]... [--only FILE] -- COMMAND...
    python3 .ci/cache.py --folder

COMMAND fills the folder $INTO. It runs only if the cache has no intact entry of this NAME for the
same COMMAND, inputs, texts and kind of machine; PLACE, below build/, then becomes a link to the
entry, or with --only to one file of it. An entry counts once its list of files exists, which is
written last and at once: a command that was killed leaves nothing that is used. Every use compares
the files with the list, and fills a damaged entry again. Where the cache cannot be written, the
command fills PLACE itself.

The cache is $DPTREES_CACHE, else $XDG_CACHE_HOME/dptrees, else ~/.cache/dptrees; it may be deleted
at any time. This program needs nothing but Python.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's cache folder.

    >>> cache_folder({"DPTREES_CACHE": "/keep", "HOME": "/home/me"}).as_posix()
    '/keep'
    >>> cache_folder({"XDG_CACHE_HOME": "/caches", "HOME": "/home/me"}).as_posix()
    '/caches/dptrees'
    """
    if folder := environment.get("DPTREES_CACHE"):
        return Path(folder).absolute()
    caches = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~"), ".cache")
    return Path(caches, "dptrees").expanduser().absolute()


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an entry is made, and all that its content depends on.

    Attributes:
        name: the first part of the entry's path.
        command: fills the folder $INTO.
        inputs: files, relative to the project.
        texts: versions and the like.
    """

    name: str
    command: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The last part of the entry's path."""
        inputs = {name: file_digest(PROJECT / name) for name in self.inputs}
        machine = (platform.system(), platform.machine())
        parts = (self.name, self.command, inputs, self.texts, machine)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def fill(self, into: Path) -> None:
        """Run the command, after removing what an earlier run left."""
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        environment = os.environ | {"INTO": str(into)}
        subprocess.run(self.command, cwd=PROJECT, env=environment, check=True)


@dataclass(frozen=True)
class Entry:
    """One entry of the cache: a folder of contents, and the list of its files beside it."""

    folder: Path

    @property
    def contents(self) -> Path:
        """The folder that the recipe fills."""
        return self.folder / "contents"

    @property
    def listing(self) -> Path:
        """The list of the files, whose existence says that the entry is complete."""
        return self.folder / "files.json"

    def files(self) -> dict[str, str]:
        """Return the digest of each file; Python's own compiled files come and go."""
        return {
            path.relative_to(self.contents).as_posix(): file_digest(path)
            for path in sorted(self.contents.rglob("*"))
            if "__pycache__" not in path.parts and not path.is_dir()
        }

    def damage(self) -> str:
        """Return why the entry cannot be used, or an empty string."""
        if not self.listing.exists():
            return "it is incomplete" if self.contents.exists() else "it does not exist"
        try:
            expected, present = json.loads(self.listing.read_text(encoding="utf-8")), self.files()
        except (OSError, ValueError) as error:
            return f"it cannot be read: {error}"
        differing = sorted(
            name for name in {*expected, *present} if expected.get(name) != present.get(name)
        )
        return f"{differing[0]} is damaged" if differing else ""

    def make(self, recipe: Recipe) -> None:
        """Fill the entry; the list comes last, by a rename."""
        self.listing.unlink(missing_ok=True)
        recipe.fill(self.contents)
        unfinished = self.listing.with_suffix(".new")
        unfinished.write_text(json.dumps(self.files(), indent=0), encoding="utf-8")
        unfinished.replace(self.listing)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fill an entry; raise OSError where nobody can."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def usable(entry: Entry, recipe: Recipe) -> bool:
    """Make the entry usable, filling it if needed; report whether that is possible."""
    if not entry.damage():
        return True
    try:
        with locked(entry.folder):
            # Another process may have filled it meanwhile.
            if reason := entry.damage():
                if entry.contents.exists():
                    print(f"The cached {recipe.name} is made again: {reason}.", flush=True)
                entry.make(recipe)
    except OSError as error:
        print(
            f"The cache {entry.folder.parent.parent} cannot be written ({error.strerror}): "
            f"{recipe.name} goes into build/ of this clone alone.",
            flush=True,
        )
        return False
    return True


def remove(place: Path) -> None:
    """Remove a file, a link or a folder; never what a link leads to."""
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)


def link(place: Path, target: Path) -> None:
    """Let a place of the clone lead into the cache, and count as new for make."""
    remove(place)
    place.symlink_to(target)
    for path in (target, *target.glob("*")) if target.is_dir() else (target,):
        with suppress(OSError):  # a cache that can only be read
            os.utime(path)


def provide(recipe: Recipe, place: Path, cache: Path, only: str = "") -> None:
    """Put what a recipe makes at a place of the clone, from the cache if possible."""
    place.parent.mkdir(parents=True, exist_ok=True)
    entry = Entry(cache / recipe.name / recipe.digest)
    if usable(entry, recipe):
        link(place, entry.contents / only if only else entry.contents)
        return
    remove(place)
    if only:
        made = place.with_name(f"{place.name}.made")
        recipe.fill(made)
        (made / only).replace(place)
        shutil.rmtree(made)
    else:
        recipe.fill(place)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("name", help="of the entry, such as prism")
    made.add_argument("place", help="a path below build/")
    made.add_argument("--input", action="append", default=[], metavar="FILE")
    made.add_argument("--text", action="append", default=[], metavar="TEXT")
    made.add_argument("--only", default="", metavar="FILE")
    return made


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    if arguments == ["--folder"]:
        print(cache_folder(os.environ))
        return 0
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given, command = parser().parse_args(arguments[:at]), arguments[at + 1 :]
    place = Path(os.path.abspath(PROJECT / given.place))  # links are not followed
    if not command or PROJECT / "build" not in place.parents:
        parser().error("a place below build/ and, after --, a command are needed")
    recipe = Recipe(
        name=given.name,
        command=tuple(command),
        inputs=tuple(given.input),
        texts=tuple(given.text),
    )
    try:
        provide(recipe, place, cache_folder(os.environ), given.only)
    except subprocess.CalledProcessError as error:
        print(f"{given.name} could not be made: exit code {error.returncode}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
