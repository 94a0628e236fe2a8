"""What the releases of one frame, or of the same files, have spent in this process so far.

No ledger: it forgets with the process and refuses nothing. It is there so that nobody runs a cell
twice without seeing what that costs.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from dpcore.privacy.budget import Budget
from pipelines.python.rows import file_paths

_budgets: dict[Hashable, list[Budget]] = {}


def note_spent(rows: Any, budget: Budget) -> str | None:
    """Notes the budget of one more release of rows.

    Args:
        rows: as of `dptrees.release`.
        budget: that it spent.

    Returns:
        what all releases of these rows spend together, in a sentence; None where this is the first,
        or the rows cannot be known again.

    >>> from dpcore.privacy.budget import Measure
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
    amounts = " and ".join(f"{name} = {float(amount):g}" for name, amount in sums.items())
    return f"{len(budgets)} releases of these rows in this process spend {amounts} together"


def _key(rows: Any) -> Hashable | None:
    """What rows are known by as long as they live; None where that cannot be seen."""
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
