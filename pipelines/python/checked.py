"""A check of rows in Python, before a release: exact results, which are not private."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dptrees.pipelines.check.checking import (
    NOT_PRIVATE,
    ColumnLayout,
    InputCheck,
    check_entry,
    check_lines,
    count_batches,
    count_input,
)
from dptrees.pipelines.check.tally import SeenBatch, Tally
from dptrees.pipelines.python.config import AnyConfig, rows_configuration
from dptrees.pipelines.python.error import Error, warn_caller
from dptrees.pipelines.python.rows import HeldSource, is_held, to_batches
from dptrees.pipelines.report.summary import guarantee_warnings


class RowCheck:
    """A check of rows before a release: **exact results, not private**, never publish them.

    Args:
        check: the result of the check.
        files: the number of files; 0 for rows in memory.
    """

    def __init__(self, check: InputCheck, files: int) -> None:
        self._check, self._files = check, files

    @property
    def rows(self) -> int:
        """The number of rows that were read."""
        return self._check.tally.rows

    @cached_property
    def entries(self) -> dict[str, Any]:
        """All results, as ``dptrees check --json`` prints them."""
        return check_entry(self._check, self._files)

    @property
    def advice(self) -> list[str]:
        """Sentences on how to fix rows that trees would drop; empty if none are needed."""
        trees = [each["advice"] for each in self.entries["malformed_classes"]]
        trees += [sentence for tree in self.entries["trees"] for sentence in tree["advice"]]
        unit = self.entries["unit_advice"]
        return trees if unit is None else [unit, *trees]

    def counted(self, tree: str) -> int:
        """Return the number of rows that a tree would count, before bounds of a privacy unit.

        Args:
            tree: the name of the tree.

        Raises:
            Error: if there is no such tree.
        """
        counted = {each["name"]: each["counted"] for each in self.entries["trees"]}
        if tree not in counted:
            raise Error(f"there is no tree {tree!r}; there are {', '.join(counted)}")
        return int(counted[tree])

    @property
    def text(self) -> str:
        """All results, as ``dptrees check`` prints them."""
        return "\n".join([NOT_PRIVATE, *check_lines(self._check)])

    def __repr__(self) -> str:
        return self.text


def row_check(
    rows: Any,
    config: AnyConfig,
    parameters: Mapping[str, object] | None,
    most: int | None,
) -> RowCheck:
    """Count the rows exactly as a release would, and find the rows that it would drop.

    Args:
        rows: the data, as for `dptrees.release`.
        config: the configuration of the release.
        parameters: parameters of the configuration, by name.
        most: the largest number of rows to read; None: all.

    Raises:
        Error, ConfigurationError, ReleaseError: in one sentence that says what to fix.
    """
    if most is not None and most < 1:
        raise Error(f"most: {most} must be a whole number from 1 on")
    configuration = rows_configuration(rows, config, {}, parameters)
    check = InputCheck(configuration=configuration, tally=Tally(plan=configuration.plan()))
    if is_held(rows):
        _count_held(check, rows, most)
        made = RowCheck(check, 0)
    else:
        made = RowCheck(check, count_input(check, most))
    for line in guarantee_warnings(check.tally.plan):
        warn_caller(line.removeprefix("warning: "))
    return made


def _count_held(check: InputCheck, rows: Any, most: int | None) -> None:
    """Add rows in memory to a check."""
    tally = check.tally
    batches = to_batches(rows, tally.plan.columns)
    HeldSource(batches, 0).checked(tally.plan)
    types = {field.name: str(field.type) for field in batches[0].schema}
    check.layouts.append(ColumnLayout(columns=types, files=1, first="rows"))
    if not count_batches(check, (SeenBatch(rows=each, texts=None) for each in batches), most):
        check.malformed = None
