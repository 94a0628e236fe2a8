"""Cases of the comparison: a data set, a number of rows, a budget and the requested quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import sqrt

from benchmarks.accuracy.sets import DataSet
from dptrees.dpcore.arrays import Floats, Integers

PERCENTILES = tuple(Fraction(percent, 100) for percent in range(1, 100))
# Numbers of evenly spread quantiles that a user may request.
QUANTILES = {m: tuple(Fraction(i, m + 1) for i in range(1, m + 1)) for m in (1, 3, 9, 99)}


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A budget of the whole release, a row being added or removed.

    Attributes:
        measure: ``epsilon`` or ``rho``.
        amount: as it is written.
    """

    measure: str
    amount: str

    def __post_init__(self) -> None:
        if self.measure not in ("epsilon", "rho") or Decimal(self.amount) <= 0:
            raise ValueError(f"budget: {self} is no epsilon=NUMBER or rho=NUMBER above 0")

    @classmethod
    def of(cls, text: str) -> Privacy:
        """A budget as the command line has it.

        >>> Privacy.of("epsilon=0.1").scale, Privacy.of("rho=0.5").scale
        (0.1, 1.0)
        """
        measure, _, amount = text.partition("=")
        return cls(measure=measure, amount=amount)

    @property
    def is_pure(self) -> bool:
        return self.measure == "epsilon"

    @property
    def value(self) -> float:
        return float(self.amount)

    @property
    def scale(self) -> float:
        """What errors are multiplied by: epsilon, or the square root of 2 rho."""
        return self.value if self.is_pure else sqrt(2 * self.value)

    def __str__(self) -> str:
        return f"{self.measure}={self.amount}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point of one set.

    Attributes:
        data: the histogram.
        rows: n.
        privacy: the budget.
        quantile_count: how many quantiles alone are requested; 0: everything.
    """

    data: DataSet
    rows: int
    privacy: Privacy
    quantile_count: int = 0

    @property
    def quantiles(self) -> tuple[Fraction, ...]:
        """Quantiles that a method has to name."""
        return QUANTILES[self.quantile_count] if self.quantile_count else PERCENTILES

    @cached_property
    def counts(self) -> Integers:
        """(K,) the exact counts."""
        return self.data.counts(self.rows)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a release says.

    Attributes:
        prefixes: (K,) the rows up to and with each cell; None: of quantiles alone.
        quantiles: the cell of each quantile; empty: read off the prefixes.
        nodes: the rows of every node of a hierarchy, by its level; empty: the rows of the cells.
    """

    prefixes: Floats | None = None
    quantiles: dict[Fraction, int] = field(default_factory=dict)
    nodes: dict[str, Floats] = field(default_factory=dict)
