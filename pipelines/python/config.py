"""A configuration in Python: a dictionary, a YAML file, or the typed objects of this module.

All of them become the same values, which go through the same checks: errors name the same
key, in the same words. What the keys mean is described in docs/configuration.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, TypeAlias, Union

from pipelines.python.keywords import with_known_fields


@dataclass(frozen=True)
class Written:
    """What a section's typed object has in common: only the keys that were given are written."""

    def values(self) -> dict[str, Any]:
        """The section as plain values."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        more = given.pop("more", {})
        # A key that is a word of Python has an underscore behind it.
        named = {name.rstrip("_"): value for name, value in given.items() if value is not None}
        return named | dict(more)


@with_known_fields
@dataclass(frozen=True, kw_only=True)
class Privacy(Written):
    """The section ``privacy``: the budget, and whom it protects.

    Args:
        epsilon, delta, rho: the budget of the whole release; one of epsilon and rho.
        neighbors: ``add_remove`` or ``substitute``.
        unit: the column that represents what is protected, or several; by default each row.
        max_rows: how many rows of a unit are counted in each tree; needed with `unit`. ``auto``, or
            a dictionary of ``share`` and ``at_most``: chosen privately, and paid for.
        max_keys, max_rows_per_key: bounds of a unit in trees with `by`; the first also ``auto``.
        unit_type: ``integer`` or ``text``: what values of `unit` are, however files write them.
        more: other keys of the section.

    >>> Privacy(epsilon=1.0).values()
    {'neighbors': 'add_remove', 'epsilon': 1.0}
    """

    neighbors: str = "add_remove"
    epsilon: float | Decimal | None = None
    delta: float | Decimal | None = None
    rho: float | Decimal | None = None
    unit: str | Sequence[str] | None = None
    max_rows: int | str | Mapping[str, Any] | None = None
    max_keys: int | str | Mapping[str, Any] | None = None
    max_rows_per_key: int | None = None
    unit_type: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@with_known_fields
@dataclass(frozen=True, kw_only=True)
class By(Written):
    """The section ``by`` of a tree: once for each key of a column.

    Args:
        column: of the keys; or `columns`, several.
        keys: a list of them, or ``private``: they are then selected, and paid for.
        labels: of listed keys, in their order, or by key.
        more: other keys of the section.
    """

    column: str | None = None
    columns: Sequence[str] | None = None
    keys: Sequence[Any] | Mapping[str, Any] | str | None = None
    labels: Sequence[str] | Mapping[Any, str] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@with_known_fields
@dataclass(frozen=True)
class Tree(Written):
    """One of ``trees``: what is counted.

    The keys of its domain and of the tree are given by name.

    Args:
        name: of the tree.
        domain: its section ``domain``.
        by: once for each key.
        quantiles: that are released beside the CDF.
        objective: what the tree is planned for.
        for_: ``counts``, ``estimates`` or ``quantiles``: which of its numbers will be read.
        mechanism: ``planned``, or one that you choose.
        guess: a public guess, such as ``{"rows": 1_000_000}``.
        fanouts: of each level, where you choose them.
        metrics: what is wanted, in place of an objective: ``["count", "mean", "p90"]``.
        weight: its part of the budget, relative to the weights of the other trees.
        more: other keys of the tree.

    >>> Tree("age", domain={"column": "age", "type": "integer", "lower": 0, "upper": 120}).values()
    {'name': 'age', 'domain': {'column': 'age', 'type': 'integer', 'lower': 0, 'upper': 120}}
    >>> Tree("age", domain={}, for_="counts", guess={"rows": 10**6}).values()
    {'name': 'age', 'domain': {}, 'for': 'counts', 'guess': {'rows': 1000000}}
    """

    name: str
    domain: Mapping[str, Any]
    by: By | Mapping[str, Any] | None = None
    quantiles: Sequence[float] | None = None
    objective: str | None = None
    for_: str | None = None
    mechanism: str | None = None
    guess: Mapping[str, Any] | None = None
    fanouts: Sequence[int] | None = None
    metrics: Sequence[str] | None = None
    weight: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


@with_known_fields
@dataclass(frozen=True, kw_only=True)
class Config(Written):
    """A whole configuration.

    Args:
        privacy: the budget, and whom it protects.
        trees: what is counted.
        release: the id of the release.
        confidence: of the intervals.
        ledger: where the budget is counted with other releases' budgets.
        dataset: the id of the data set there.
        more: other keys of the file.
    """

    privacy: Privacy | Mapping[str, Any]
    trees: Sequence[Tree | Mapping[str, Any]]
    release: str | None = None
    confidence: float | None = None
    ledger: str | None = None
    dataset: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


# Whatever describes a release.
AnyConfig: TypeAlias = Union[Config, Mapping[str, Any], str, "os.PathLike[str]"]


# The keys whose value may be a frame: a row for each leaf, key or category.
_LISTS = ("leaves", "keys", "categories")


def _is_frame(value: Any) -> bool:
    """Whether it has columns; a single column of values has none."""
    columns = hasattr(value, "columns") or hasattr(value, "column_names")
    return columns and hasattr(value, "__arrow_c_stream__")


def plain(value: Any) -> Any:
    """A value as one of a YAML file would be read: decimals for floats, lists for tuples.

    >>> plain({"epsilon": 0.1, "keys": ("UA", "AA"), "categories": range(3)})
    {'epsilon': Decimal('0.1'), 'keys': ['UA', 'AA'], 'categories': [0, 1, 2]}
    """
    if isinstance(value, Written):
        return plain(value.values())
    if isinstance(value, Mapping):
        return {
            key: _frame_rows(each) if key in _LISTS and _is_frame(each) else plain(each)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple, range, KeysView, ValuesView)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, (str, bool, int, Decimal, datetime.date)):
        return value
    for name in ("tolist", "to_pylist", "to_list", "as_py"):  # of NumPy, pandas, Arrow, Polars
        if hasattr(value, name):
            return plain(getattr(value, name)())
    return value


def _frame_rows(frame: Any) -> list[Any]:
    """The rows of a frame, such as leaves: values of one column, or a list of each row's."""
    import pyarrow as pa

    if type(frame).__module__.startswith("pandas"):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    else:
        table = pa.table(frame)
    columns = [plain(each.to_pylist()) for each in table.columns]
    return columns[0] if len(columns) == 1 else [list(row) for row in zip(*columns, strict=True)]
