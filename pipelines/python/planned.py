"""The plan of a release in Python, and the check of its rows, before it is made.

The results of a check are exact, and not private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from numbers import Real
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.guarantee import stated_guarantee
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
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.python.answers import table_html
from dptrees.pipelines.python.config import AnyConfig, rows_configuration
from dptrees.pipelines.python.error import (
    Error,
    short_tracebacks,
    warn_caller,
)
from dptrees.pipelines.python.rows import HeldSource, is_held, to_batches
from dptrees.pipelines.report.planning import (
    composition_entry,
    composition_lines,
    tree_entries,
    tree_lines,
    unit_bounds_entry,
    unit_bounds_lines,
    whole_target,
)
from dptrees.pipelines.report.summary import guarantee_warnings
from dptrees.pipelines.show.answers import TextTable
from dptrees.pipelines.show.figures import cell_text
from dptrees.pipelines.show.mechanisms import TargetError, TargetErrors
from dptrees.transforms.held import KEPT_SCHEME

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
