"""The table of quantiles that were chosen: the columns of every quantiles table, with intervals
where these were requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dpcore.exponential.choosing import ChosenQuantiles
from dpcore.questions.tables import tree_and_key

if TYPE_CHECKING:  # which calls this file
    from dpcore.exponential.question import ExponentialQuestion

_INTERVAL = ("ci_low", "ci_high")


def chosen_table(question: ExponentialQuestion, chosen: ChosenQuantiles) -> pa.Table:
    """The rows of the quantiles of all keys, (keys, quantiles) in ``chosen``.

    How far their ranks may be off is told without the data (`dpcore.exponential.margins`), how far
    their values are is not: without intervals, the ends of these are null.
    """
    keys, wanted = chosen.cells.shape
    # As they were requested, not as they rise.
    order = question.order
    cells, shares = chosen.cells[:, order].reshape(-1), chosen.shares[:, order].reshape(-1)
    values = question.domain.value_at(cells, shares)
    # From the least value of the first cell to the largest of the last.
    ends = [
        question.domain.value_at(side[:, order].reshape(-1), np.full(len(values), share))
        for side, share in zip(() if chosen.ends is None else chosen.ends, (0.0, 1.0), strict=False)
    ]
    is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    unknown, text = pa.nulls(len(values), pa.float64()), pa.nulls(len(values), pa.string())

    def numbers(found: pa.Array) -> pa.Array:
        return found.cast(pa.float64(), safe=False) if is_number else unknown

    names = zip(("tree", "key"), tree_and_key(question, 0, keys, wanted), strict=True)
    return pa.table(
        dict(names)
        | {"q": pa.array(np.tile(np.asarray(question.quantiles, np.float64), keys))}
        | {"value": numbers(values)}
        | dict(zip(_INTERVAL, map(numbers, ends) if ends else (unknown, unknown), strict=True))
        | {"value_text": values.cast(pa.string())}
        | dict(
            zip(
                (f"{name}_text" for name in _INTERVAL),
                (each.cast(pa.string()) for each in ends) if ends else (text, text),
                strict=True,
            )
        )
    )
