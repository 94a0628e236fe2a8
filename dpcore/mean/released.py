"""The answers about a mean that was measured alone: mean, total and number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.mean.question import MeanQuestion
from dptrees.dpcore.questions.released import Answer, ReadPart, Released
from dptrees.dpcore.questions.statistics import BlockedValues, Statistic, StatisticKind, half_width
from dptrees.dpcore.questions.tables import NODES

_NAMES = ("label", "estimate", "std_error", "count")


class ReleasedMean(Released):
    """The means of one tree.

    Args:
        question: the tree.
        read: gives the rows of its one part.
    """

    unordered = "has a mean alone (objective: mean), which gives no CDF"
    only_statistics = (StatisticKind.MEAN, StatisticKind.TOTAL)
    question: MeanQuestion

    def __init__(
        self, question: MeanQuestion, read: ReadPart, confidence: float | None = None
    ) -> None:
        self.question, self._read = question, read
        self.confidence = question.confidence if confidence is None else confidence

    @property
    def height(self) -> int:
        """0: the parts at both ends are for the mean, and are no counts of rows."""
        return 0

    @property
    def rows(self) -> pa.Table:
        """The number of rows of each key, rows of the table of nodes."""
        return self._level(0)

    def _level(self, level: int) -> pa.Table:
        table = self._read(NODES, self.question.name, 0, 0)
        return table.filter(pc.equal(table["level"], level))

    def at_confidence(self, confidence: float) -> ReleasedMean:
        if not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        return ReleasedMean(self.question, self._read, confidence)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The number of rows of a key, the only node.

        Raises:
            ValueError: there is no such level or key.
        """
        if level != 0:
            raise ValueError(f"level: {level} is not 0; tree {self._name} has a mean alone")
        return [self.at_path("", key)][:count]

    def at_path(self, path: str, key: object = None) -> Answer:
        """The number of rows of a key.

        Raises:
            ValueError: a path, or no such key.
        """
        if path:
            raise ValueError(f"path: tree {self._name} has a mean alone; use --path ''")
        row: dict[str, Any] = self.rows.slice(self._code(key), 1).to_pylist()[0]
        found = {name: row[name] for name in _NAMES}
        reach = half_width(self.confidence) * row["std_error"]
        found["ci_low"] = max(0.0, row["estimate"] - reach)
        found["ci_high"] = max(0.0, row["estimate"] + reach)
        return Answer(**found, fraction=None)

    def statistic(
        self,
        kind: StatisticKind,
        lower: object = None,
        upper: object = None,
        key: object = None,
    ) -> Statistic:
        """Return the mean or the total of the values.

        Raises:
            ValueError: a range, another statistic, no such key, or too few rows to divide by.
        """
        if kind not in self.only_statistics:
            raise ValueError(
                f"{kind.value}: tree {self._name} has a mean alone; a tree without objective: mean "
                f"has a {kind.value} too"
            )
        if lower is not None or upper is not None:
            raise ValueError(
                f"{kind.value}: tree {self._name} has a mean of all its rows alone; a tree without "
                "objective: mean has means of ranges too"
            )
        try:
            return self._values(self._code(key)).statistic(kind)
        except ValueError as error:
            raise ValueError(f"{kind.value}: {error}") from None

    def _values(self, code: int) -> BlockedValues:
        question, domain = self.question, self.question.domain
        estimates = self._level(1)["estimate"].to_numpy()[2 * code : 2 * code + 2]
        variance = question.share_error * question.share_error
        label = domain.range_labels(np.array([0]), np.array([domain.cells]))[0].as_py()
        return BlockedValues(
            label=domain.clamped_label(0, domain.cells) or label,
            estimates=estimates,
            middles=question.ends,
            halves=np.full(2, domain.half_width),
            spreads=np.zeros(2),
            variance=lambda weights: variance * dot(weights, weights),
            confidence=self.confidence,
        )

    def _code(self, key: object) -> int:
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        return 0 if keys is None else keys.find_code(key)
