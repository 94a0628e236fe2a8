"""Queries of a release in Python, from a folder or from the memory of this process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from functools import cached_property

from dpcore.release.guarantee import stated_guarantee
from dpcore.release.release import ReleaseReader
from pipelines.python.error import Error, user_errors
from pipelines.python.html import table_html
from pipelines.python.tree import TreeAnswers
from pipelines.release_folder import ReleaseFolder
from pipelines.reporting import write_report
from pipelines.series.series_folder import WindowFolder
from pipelines.user_error import UserError
from transforms import files
from transforms.held_files import KeptFiles
from transforms.layout import MANIFEST


def save_release(place: str, path: str) -> str:
    """Writes the files of a release, its manifest last, and then its report.

    Args:
        place: where it lies in memory.
        path: the folder, which may not hold anything.

    Returns:
        the path.

    Raises:
        UserError: something is there.
        OutputError: a file cannot be written.
    """
    files.use_environment()
    if (os.path.exists(path) and not os.path.isdir(path)) or any(files.names_below(path)):
        raise UserError(f"{path}: holds something already; choose another folder")
    held = {
        name.removeprefix(f"{place}/"): data
        for name, (_, data) in KeptFiles.objects.items()
        if name.startswith(f"{place}/")
    }
    for name in sorted(held, key=lambda name: (name == MANIFEST, name)):
        files.write_whole(files.join(path, *name.split("/")), held[name])
    write_report(path)
    return path


class Release:
    """A finished release: it may be published, and queries of it cost no budget.

    ``release["age"]`` is a tree of it, and iterating gives the names of its trees.

    Args:
        folder: of the release, or periods of a series.
        path: of its folder; None: it lives in memory, until this object is gone.
    """

    def __init__(self, folder: ReleaseFolder | WindowFolder, path: str | None) -> None:
        self._folder, self.path = folder, path
        if path is None:
            assert isinstance(folder, ReleaseFolder)
            weakref.finalize(self, _forget, folder.path)

    def __getitem__(self, tree: str) -> TreeAnswers:
        """The answers about a tree.

        Raises:
            Error: there is none of this name.
        """
        if tree not in self.trees:
            raise Error(f"there is no tree {tree!r}; it has {', '.join(self.trees)}")
        with user_errors():
            # The answers read the release at each query: it must live as long as they do.
            return TreeAnswers(self._reader.tree(tree), self._folder, owner=self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @cached_property
    def _reader(self) -> ReleaseReader | WindowFolder:
        """The reader of all its trees, which reads the released quantiles once."""
        return self._folder.release

    @cached_property
    def trees(self) -> tuple[str, ...]:
        """The names of its trees."""
        return tuple(question.name for question in self._folder.plan.questions)

    @property
    def name(self) -> str:
        """Its id."""
        return self._folder.plan.name

    @property
    def guarantee(self) -> str:
        """What is promised, in one line."""
        return stated_guarantee(self._folder.plan)

    @property
    def manifest(self) -> dict[str, object]:
        """Return the manifest: everything that the release states about itself.

        Raises:
            Error: this is a window of several periods, and each period has its own manifest.
        """
        if not isinstance(self._folder, ReleaseFolder):
            raise Error("manifest: these are several periods; open the folder of one of them")
        return dict(self._folder.manifest)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes a release that lives in memory into a new folder, with its report.

        Returns:
            the path of the folder: a release as of the command, complete once this returns.

        Raises:
            Error: it lies in a folder already; something is there; it cannot be written.
        """
        if self.path is not None:
            raise Error(f"{self.path}: the release lies there already; copy the folder")
        assert isinstance(self._folder, ReleaseFolder)
        with user_errors():
            return save_release(self._folder.path, os.fspath(path))

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else repr(self.path)
        lines = [f"<Release {self.name} {place}: {self.guarantee}"]
        lines += [f"  {self[tree]._line()}" for tree in self.trees]
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        rows = [[tree, *self[tree]._described()] for tree in self.trees]
        caption = f"{self.name}: {self.guarantee}"
        return table_html(caption, ("tree", "columns", "keys", "total"), rows)


def _forget(path: str) -> None:
    """Lets go of a release in memory."""
    from transforms.held_files import KeptFiles

    KeptFiles.taken(path)
