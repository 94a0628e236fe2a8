"""The spending of all releases of one frame, or of the same files, in this process.

This is no ledger: it ends with the process and refuses nothing. It warns people who run a cell
twice.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from dptrees.dpcore.privacy.unit import Budget, amount_text
from dptrees.pipelines.python.rows import file_paths

_budgets: dict[Hashable, list[Budget]] = {}


def note_spent(rows: Any, budget: Budget) -> str | None:
    """Record the budget of one more release of rows.

    Args:
        rows: the data, as for `dptrees.release`.
        budget: the budget that the release spent.

    Returns:
        A sentence with the spending of all releases of these rows; None if this is the first, or
        the rows cannot be recognized.

    >>> from dptrees.dpcore.privacy.unit import Measure
    >>> budget = Budget(measure=Measure.EPSILON, amount=Fraction(1, 2))
    >>> note_spent("rows/*.parquet", budget)
    >>> note_spent("rows/*.parquet", budget)
    '2 releases of these rows in this process spend epsilon = 1 together'
    """
    key = _key(rows)
    if key is None:
        return None
    budgets = _budgets.setdefault(key, [])
    budgets.append(budget)
    if len(budgets) == 1:
        return None
    sums: dict[str, Fraction] = {}
    for each in budgets:
        name = each.measure.value
        sums[name] = sums.get(name, Fraction(0)) + each.amount
    amounts = " and ".join(f"{name} = {amount_text(amount)}" for name, amount in sums.items())
    return f"{len(budgets)} releases of these rows in this process spend {amounts} together"


def _key(rows: Any) -> Hashable | None:
    """Return the identity of rows as long as they exist; None if they have none."""
    paths = file_paths(rows)
    if paths is not None:
        return tuple(map(os.path.abspath, paths))
    key = id(rows)
    if key not in _budgets:
        try:
            weakref.finalize(rows, _budgets.pop, key, None)
        except TypeError:
            return None
    return key
