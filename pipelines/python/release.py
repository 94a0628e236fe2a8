"""A release in Python: its plan before any row is read, and its queries, from folder or memory."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.guarantee import stated_guarantee
from dptrees.dpcore.release.released import ReleaseReader
from dptrees.pipelines.check.verifying import VerifyRequest, verify_release
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.proof.verified import raise_first
from dptrees.pipelines.python.answers import table_html
from dptrees.pipelines.python.error import (
    Error,
    reports_edits,
    short_tracebacks,
    user_errors,
)
from dptrees.pipelines.python.tree import TreeAnswers
from dptrees.pipelines.query.querying import sample_stream, trees_with_rows
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.query.series_folder import WindowFolder
from dptrees.pipelines.report.planning import (
    composition_entry,
    composition_lines,
    tree_entries,
    tree_lines,
    unit_bounds_entry,
    unit_bounds_lines,
    whole_target,
)
from dptrees.pipelines.report.summary import guarantee_warnings, write_report
from dptrees.pipelines.show.answers import TextTable
from dptrees.pipelines.show.figures import cell_text
from dptrees.pipelines.show.mechanisms import TargetError, TargetErrors
from dptrees.transforms.folder import files
from dptrees.transforms.folder.layout import MANIFEST
from dptrees.transforms.held import KEPT_FILES, KEPT_SCHEME

_SCHEMA = pa.schema(
    {
        "tree": pa.string(),
        "keys": pa.int64(),
        "mechanism": pa.string(),
        "error": pa.float64(),
        "unit": pa.string(),
    }
)


@short_tracebacks
class Plan:
    """The plan of a release, with its expected errors.

    Args:
        configuration: the configuration of the release.
        units: the folder of a release of the numbers of rows per unit, to compare bounds; None:
            bounds are not compared.
    """

    def __init__(self, configuration: Configuration, units: str | None = None) -> None:
        self._configuration, self._plan = configuration, configuration.plan()
        self._units = None if units is None else unit_bounds_entry(configuration, units)
        if units is not None and units.startswith(KEPT_SCHEME):
            self._units = {**(self._units or {}), "release": "a release in memory"}

    @property
    def guarantee(self) -> str:
        """The guarantee, in one line."""
        return stated_guarantee(self._plan)

    @property
    def warnings(self) -> list[str]:
        """Sentences on settings that make the guarantee weak."""
        return [line.removeprefix("warning: ") for line in guarantee_warnings(self._plan)]

    @property
    def max_rows(self) -> int:
        """The bound on the rows of a privacy unit that adds the least error.

        Raises:
            Error: if `dptrees.plan` was called without `units`.
        """
        if self._units is None:
            raise Error("max_rows: give plan(..., units=) a release of a tree of type unit_rows")
        return int(self._units["recommended"])

    @cached_property
    def entries(self) -> dict[str, Any]:
        """All details of the plan, as ``dptrees plan --json`` prints them."""
        trees = tree_entries(self._configuration, self._plan)
        composition = composition_entry(self._configuration, self._plan)
        units = {} if self._units is None else {"units": self._units}
        return {"trees": trees, "composition": composition} | units

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each tree.

        Its keys are ``tree`` (the name), ``keys`` (their number), ``mechanism``, and ``error``: the
        standard error for the objective of the tree, in ``unit``. Both are None if no error is
        known beforehand.
        """
        composed = {each["name"]: each for each in self.entries["composition"]["trees"]}
        return [
            {
                "tree": tree["name"],
                "keys": tree.get("keys"),
                "mechanism": tree.get("mechanism"),
                "error": composed.get(tree["name"], {}).get("error"),
                "unit": composed.get(tree["name"], {}).get("unit"),
            }
            for tree in self.entries["trees"]
        ]

    def to_arrow(self) -> pa.Table:
        """Return the dictionaries of `to_dicts` as an Arrow table."""
        return pa.Table.from_pylist(self.to_dicts(), schema=_SCHEMA)

    def budget_for(self, error: float | Mapping[str, float]) -> dict[str, Any]:
        """Return the smallest budget of the release at which the errors reach a target.

        Args:
            error: the largest error of every tree, the ``error`` of `to_dicts` in its ``unit``; or
                of some trees, by name, which is needed where trees have several units.

        Returns:
            The budget, and the errors of the trees at this budget, as ``dptrees plan
            --target-error --json`` prints them.

        Raises:
            Error: if there is no such tree, or no such budget.
        """
        named = error if isinstance(error, Mapping) else {}
        target_errors = TargetErrors(
            each=None if named else _wanted(error),
            named={name: _wanted(each) for name, each in named.items()},
        )
        if all(each.error_unit is None for each in self._configuration.workloads):
            raise Error("error: no tree has an error that is known before the release")
        try:
            errors = target_errors.by_tree(self._configuration.workloads, None)
            return whole_target(self._configuration, errors)
        except UserError as refused:
            raise Error(f"error: {str(refused).removeprefix('--target-error: ')}") from None

    @property
    def text(self) -> str:
        """The levels, the noise and the errors of every tree, as ``dptrees plan`` prints them."""
        lines = list(composition_lines(self.entries["composition"]))
        for question, entry in zip(self._plan.questions, self.entries["trees"], strict=True):
            lines += tree_lines(question, entry)
        if self._units is not None:
            lines += unit_bounds_lines(self._units)
        return "\n".join(lines)

    def _cells(self) -> list[list[str]]:
        return [[cell_text(name, row) for name in row] for row in self.to_dicts()]

    def __repr__(self) -> str:
        table = TextTable.from_rows(_SCHEMA.names, self._cells())
        return "\n".join([f"{self._plan.name}: {self.guarantee}", *table.lines()])

    def _repr_html_(self) -> str:
        caption = f"{self._plan.name}: {self.guarantee}"
        return table_html(caption, _SCHEMA.names, self._cells())


def _wanted(error: Any) -> TargetError:
    if not isinstance(error, Real) or not 0 < float(error) < math.inf:
        raise Error(f"error: {error!r} must be a number above 0, in the unit of the tree")
    return TargetError(amount=float(error), is_part=False)


# The most synthetic rows in memory.
MOST_SAMPLED = 10**8


def save_release(place: str, path: str) -> str:
    """Write the files of a release, its manifest last, and then its report.

    Args:
        place: the place of the release in memory.
        path: the folder, which must be new or empty.

    Returns:
        The path.

    Raises:
        UserError: if the folder contains something.
        OutputError: if a file cannot be written.
    """
    if (os.path.exists(path) and not os.path.isdir(path)) or any(files.names_below(path)):
        raise UserError(f"{path}: holds something already; choose another folder")
    held = {
        name.removeprefix(f"{place}/"): data
        for name, (_, data) in KEPT_FILES.objects.copy().items()
        if name.startswith(f"{place}/")
    }
    for name in sorted(held, key=lambda name: (name == MANIFEST, name)):
        files.write_whole(files.join(path, *name.split("/")), held[name])
    write_report(path)
    return path


@short_tracebacks
@reports_edits
class Release:
    """A finished release: it may be published, and queries of it cost no budget.

    ``release["age"]`` returns the answers for a tree. Iteration gives the names of the trees.

    Args:
        folder: the folder of the release, or periods of a series.
        path: the path of the folder; None: the release is in memory, as long as this object exists.
    """

    def __init__(self, folder: ReleaseFolder | WindowFolder, path: str | None) -> None:
        self._folder, self.path = folder, path
        # The spending of all releases of the same rows in this process, if there are several.
        self.together: str | None = None
        if path is None:
            assert isinstance(folder, ReleaseFolder)
            weakref.finalize(self, _forget, folder.path)

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
            return TreeAnswers(self._reader.tree(tree), self._folder, owner=self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @cached_property
    def _reader(self) -> ReleaseReader | WindowFolder:
        """The reader of all trees, which reads the released quantiles once."""
        return self._folder.release

    @cached_property
    def trees(self) -> tuple[str, ...]:
        """The names of the trees."""
        return tuple(question.name for question in self._folder.plan.questions)

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
        return stated_guarantee(self._folder.plan)

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
            return save_release(self._folder.path, os.fspath(path))

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
        drawn = [tree] if tree is not None else trees_with_rows(folder)
        if len(drawn) != 1:
            raise Error(
                f"sample: rows can be drawn from {', '.join(drawn)}; choose one by tree="
                if drawn
                else "sample: no tree has synthetic rows; use a domain of kind hypercube or table"
            )
        with user_errors(is_query=True):
            sampler = folder.release.tree(drawn[0]).sampler()
            number = sampler.total if rows is None else rows
            if not 1 <= number <= MOST_SAMPLED:
                raise Error(
                    f"rows: {number} must be from 1 to {MOST_SAMPLED:,}; dptrees sample writes "
                    "more to a file"
                )
            batches = sampler.batches(number, sample_stream(seed))
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
            request = VerifyRequest(
                folder=self._one_folder("verify").path,
                signer=None if signer is None else os.fspath(signer),
                key=None if key is None else os.fspath(key),
                data=tuple(os.fspath(each) for each in paths),
                parameters={name: str(value) for name, value in (set or {}).items()},
            )
        except UserError as error:  # in the words of the command's options
            raise Error(str(error).replace("--", "")) from None
        with user_errors():
            findings = verify_release(request)
            raise_first(self.path or self.name, findings)
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
        from dptrees.pipelines.report.report import write_report_html

        with user_errors():
            page = write_report_html(self._one_folder("report"), {})
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

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else repr(self.path)
        lines = [f"<Release {self.name} {place}: {self.guarantee}"]
        lines += [f"  {self[tree]._line()}" for tree in self.trees]
        lines += [] if self.together is None else [f"  {self.together}"]
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        rows = [[tree, *self[tree]._described()] for tree in self.trees]
        caption = f"{self.name}: {self.guarantee}"
        caption += "" if self.together is None else f"; {self.together}"
        return table_html(caption, ("tree", "columns", "keys", "total"), rows)


def _forget(path: str) -> None:
    """Remove a release from memory."""

    KEPT_FILES.taken(path)
