"""The answers about quantiles that were chosen: those that were requested, and nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.exponential.question import ExponentialQuestion, exact_quantile
from dptrees.dpcore.questions.released import Answer, Released, Total


class ReleasedQuantiles(Released):
    """The quantiles of one tree.

    Args:
        question: the tree.
        quantiles: the table of quantiles, of all trees.
    """

    question: ExponentialQuestion
    unordered = "has the exponential mechanism's quantiles alone, which give no CDF"

    def __init__(self, question: ExponentialQuestion, quantiles: pa.Table) -> None:
        self.question, self._quantiles = question, quantiles

    @property
    def height(self) -> int:
        return 0

    def rows_in_all(self) -> Total | None:
        """Rows are not counted."""
        return None

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise self._without_counts("top")

    def numbered_level(self, name: str | None) -> int:
        raise self._without_counts("node")

    def sum(self, paths: object, key: object = None) -> Answer:
        raise self._without_counts("sum")

    def quantiles(self, key: object = None) -> list[dict[str, Any]]:
        """The released quantiles, rows of the quantiles table in the order they were requested."""
        keys, code = self.question.keys, 0
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        if keys is not None:
            code = keys.find_code(key)
        quantile_count = len(self.question.quantiles)
        mine = pc.equal(self._quantiles["tree"].cast(pa.string()), self._name)
        rows: list[dict[str, Any]] = (
            self._quantiles.filter(mine).slice(code * quantile_count, quantile_count).to_pylist()
        )
        return list(map(self.question.domain.quantile_in_words, rows))

    def quantile(self, quantile: float | str, key: object = None) -> dict[str, object]:
        """One of the quantiles that were requested, and by how many rows and what share of all
        rows its rank is off at most, with the tree's confidence."""
        rows = self.quantiles(key)
        try:
            place = list(map(exact_quantile, self.question.quantiles)).index(
                exact_quantile(float(quantile))
            )
        except ValueError:
            released = ", ".join(f"{each:g}" for each in self.question.quantiles)
            raise ValueError(
                f"quantile: tree {self._name} has only these quantiles: {released}; {quantile} was "
                "not released"
            ) from None
        margin = self.question.rank_margins[place]
        return rows[place] | {"rank_rows": margin.rows, "rank_share": margin.share}

    @property
    def released_quantiles(self) -> tuple[float, ...]:
        return self.question.quantiles

    def _without_counts(self, wanted: str) -> ValueError:
        return ValueError(
            f"{wanted}: tree {self._name} has the exponential mechanism's quantiles alone, no "
            "counts"
        )
