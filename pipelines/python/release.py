"""A release in Python and its queries, from a folder or from memory."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dptrees.pipelines.process import Later, UserError
from dptrees.pipelines.python.answers import table_html
from dptrees.pipelines.python.error import (
    Error,
    reports_edits,
    short_tracebacks,
    user_errors,
    warn_caller,
)
from dptrees.pipelines.python.tree import TreeAnswers
from dptrees.pipelines.query.folders import AnyFolder
from dptrees.pipelines.query.release_folder import ReleaseFolder

if TYPE_CHECKING:
    from dptrees.dpcore.release.released import ReleaseReader
    from dptrees.pipelines.query.series_folder import WindowFolder

_find_kind = Later("config.registry:find_kind")
_forget, _save = Later("python.making:forget"), Later("python.making:save_release")
_guarantee = Later("query.release_plan:guarantee")
_sample_stream = Later("query.sampling:sample_stream")
_trees_with_rows = Later("query.sampling:trees_with_rows")
_VerifyRequest = Later("check.verifying:VerifyRequest")
_raise_first = Later("proof.verified:raise_first")
_verify_release = Later("check.verifying:verify_release")
_write_report = Later("report.report:write_report_html")
# The most synthetic rows in memory.
MOST_SAMPLED = 10**8


@short_tracebacks
@reports_edits
class Release:
    """A finished release: it may be published, and queries of it cost no budget.

    ``release["age"]`` returns the answers for a tree. Iteration gives the names of the trees.

    Args:
        folder: the folder of the release, or periods of a series.
        path: the path of the folder; None: the release is in memory, as long as this object exists.
    """

    def __init__(self, folder: AnyFolder, path: str | None) -> None:
        self._folder, self.path = folder, path
        # The spending of all releases of the same rows in this process, if there are several.
        self.together: str | None = None
        if path is None:
            assert isinstance(folder, ReleaseFolder)
            weakref.finalize(self, _forget.load(), folder.path)

    def __getitem__(self, tree: str) -> TreeAnswers:
        """Return the answers for a tree.

        Args:
            tree: the name of the tree.

        Raises:
            Error: if there is no tree of this name.
        """
        if tree not in self.trees:
            raise Error(f"there is no tree {tree!r}; it has {', '.join(self.trees)}")
        with user_errors():
            # The answers read the release at each query: it must live as long as they do.
            answers = self._folder.lookup(tree) or self._reader.tree(tree)
            return TreeAnswers(answers, self._folder, owner=self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @cached_property
    def _reader(self) -> ReleaseReader | WindowFolder:
        """The reader of all trees, which reads the released quantiles once."""
        return self._folder.release

    @property
    def trees(self) -> tuple[str, ...]:
        """The names of the trees."""
        return tuple(self._folder.trees)

    @property
    def name(self) -> str:
        """The id of the release."""
        return self._folder.plan.name

    @property
    def place(self) -> str:
        """The place of the files: a folder, or a place in the memory of this process.

        Raises:
            Error: if this is a window of several periods.
        """
        return self._one_folder("place").path

    @property
    def guarantee(self) -> str:
        """The guarantee, in one line."""
        guarantee: str = _guarantee(self._folder)
        return guarantee

    @property
    def manifest(self) -> dict[str, object]:
        """The manifest: all statements of the release about itself.

        Raises:
            Error: if this is a window of several periods: each period has its own manifest.
        """
        return dict(self._one_folder("manifest").manifest)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a release in memory to a new folder, with its report.

        Args:
            path: the folder, which must be new or empty.

        Returns:
            The path of the folder. It is a release as the command writes it, and is complete once
            this returns.

        Raises:
            Error: if the release is in a folder already, `path` contains something, or it cannot
                be written.
        """
        if self.path is not None:
            raise Error(f"{self.path}: the release lies there already; copy the folder")
        assert isinstance(self._folder, ReleaseFolder)
        with user_errors():
            saved: str = _save(self._folder.path, os.fspath(path))
        return saved

    def sample(
        self, rows: int | None = None, *, tree: str | None = None, seed: int | None = None
    ) -> pa.Table:
        """Draw synthetic rows, which costs no budget.

        Args:
            rows: the number of rows; None: the number of counted rows.
            tree: the name of the tree; optional if rows can be drawn from one tree only.
            seed: a whole number; the same seed gives the same rows.

        Returns:
            The rows, with the columns of the tree; ``.to_pandas()`` converts them to a DataFrame.

        Raises:
            Error: if no tree gives rows, or several do and `tree` is None; or if there would be too
                many rows for memory (``dptrees sample`` writes them to a file).
        """
        if tree is not None and tree not in self.trees:
            raise Error(f"there is no tree {tree!r}; it has {', '.join(self.trees)}")
        folder = self._folder
        drawn = [tree] if tree is not None else _trees_with_rows(folder)
        if len(drawn) != 1:
            raise Error(
                f"sample: rows can be drawn from {', '.join(drawn)}; choose one by tree="
                if drawn
                else "sample: no tree has synthetic rows; use a domain of kind hypercube or table"
            )
        with user_errors(is_query=True):
            released = folder.release.tree(drawn[0])
            sampler = released.sampler()
            number = sampler.total if rows is None else rows
            if not 1 <= number <= MOST_SAMPLED:
                raise Error(
                    f"rows: {number} must be from 1 to {MOST_SAMPLED:,}; dptrees sample writes "
                    "more to a file"
                )
            for line in _find_kind(released.question).lines().drawn(released):
                if line.startswith("warning: "):
                    warn_caller(line.removeprefix("warning: "))
            batches = sampler.batches(number, _sample_stream(seed))
            return pa.Table.from_batches(batches, sampler.schema)

    def verify(
        self,
        *,
        signer: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        data: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
        set: Mapping[str, object] | None = None,
    ) -> list[dict[str, Any]]:
        """Check the release against itself and, if given, against its signer, key and rows.

        Args:
            signer: a file with the public key that must have signed the manifest.
            key: the place of the release key: a path, ``file:PATH`` or ``env:NAME``.
            data: files of the rows, or the configuration of the release. The release is made again
                in memory, and every bit is compared. Needs `key`, here or in the configuration.
            set: parameters of that configuration, by name.

        Returns:
            The findings: ``check``, ``ok`` (None if the check was not made), and ``why``.

        Raises:
            Error: if a check fails; the message names it and the reason.
        """

        paths = [data] if isinstance(data, (str, os.PathLike)) else data
        try:
            request = _VerifyRequest(
                folder=self._one_folder("verify").path,
                signer=None if signer is None else os.fspath(signer),
                key=None if key is None else os.fspath(key),
                data=tuple(os.fspath(each) for each in paths),
                parameters={name: str(value) for name, value in (set or {}).items()},
            )
        except UserError as error:  # in the words of the command's options
            raise Error(str(error).replace("--", "")) from None
        with user_errors():
            findings = _verify_release(request)
            _raise_first(self.path or self.name, findings)
        return [{"check": each.check, "ok": each.ok, "why": each.told} for each in findings]

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report page of the release as self-contained HTML, or write it to a file.

        Args:
            path: a new file; None: the page is returned.

        Returns:
            The HTML of the page, or the path of the file.

        Raises:
            Error: if the file exists, or cannot be written.
        """
        with user_errors():
            page: str = _write_report(self._one_folder("report"), {})
            if path is None:
                return page
            place = os.fspath(path)
            try:
                with open(place, "x", encoding="utf-8", newline="") as file:
                    file.write(page)
            except OSError as error:
                raise Error(f"report: {place} cannot be written ({error.strerror})") from None
            return place

    def _one_folder(self, query: str) -> ReleaseFolder:
        """Return the folder, if it is the folder of one release.

        Raises:
            Error: if this is a window of several periods.
        """
        if not isinstance(self._folder, ReleaseFolder):
            raise Error(f"{query}: these are several periods; open the folder of one of them")
        return self._folder

    def _remarks(self) -> Iterator[str]:
        bounds = self._folder.plan.bounds
        if bounds is not None:
            yield f"chosen first: {bounds.chosen_in_words}"
        if self.together is not None:
            yield self.together

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else repr(self.path)
        lines = [f"<Release {self.name} {place}: {self.guarantee}"]
        lines += [f"  {self[tree]._line()}" for tree in self.trees]
        lines += [f"  {each}" for each in self._remarks()]
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        rows = [[tree, *self[tree]._described()] for tree in self.trees]
        caption = "; ".join([f"{self.name}: {self.guarantee}", *self._remarks()])
        return table_html(caption, ("tree", "columns", "keys", "total"), rows)
