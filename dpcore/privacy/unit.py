"""Privacy units, neighboring relations and budgets.

Two neighboring data sets differ in one unit: a row, or all rows that agree in some columns (a
person, a device). ``add_remove``: one has a unit more; ``substitute``: one unit has other rows
(where the unit is the row, the number of rows N is public). Rows of a unit beyond its bounds are
left out before anything is counted (`dpcore.bounding`). Budgets are exact rationals, so that the
parts of a budget sum to no more than the whole. Source: Rameshwar, Tandon, Sharma, Section II
(substitute-one neighbors, N public); Bun, Steinke 2016, Propositions 1.4 and 1.6 (zCDP, Gaussian
noise); Canonne, Kamath, Steinke 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fractions import Fraction
from typing import Any

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.specification import CONTEXT, Coded, Refusal, coded

_SHARE_UNITS = 2**20


class Neighbors(Enum):
    """Neighboring relation: the pairs of data sets that the guarantee makes hard to distinguish."""

    ADD_REMOVE = "add_remove"
    SUBSTITUTE = "substitute"


class Measure(Enum):
    """The measure of privacy loss in which a budget is stated."""

    EPSILON = "epsilon"  # pure differential privacy, discrete Laplace noise
    RHO = "rho"  # zero-concentrated differential privacy, discrete Gaussian noise


# p: the variance of the noise that a budget buys is proportional to budget^-p.
VARIANCE_POWER = {Measure.EPSILON: 2, Measure.RHO: 1}


def amount_text(amount: Fraction) -> str:
    """An amount of a budget for a person: six digits, or as many as it takes to be exact.

    >>> amount_text(Fraction("0.3")), amount_text(Fraction("0.30000000000000004"))
    ('0.3', '0.30000000000000004')
    """
    short = f"{float(amount):g}"
    return short if Fraction(short) == amount else repr(float(amount)).removesuffix(".0")


@dataclass(frozen=True, kw_only=True)
class Budget(Coded):
    """An amount of privacy loss; amounts of one measure add up under composition.

    Args:
        measure: epsilon (pure differential privacy) or rho (zCDP).
        amount: the loss, positive.

    Raises:
        ValueError: the amount is not positive.

    >>> Budget(measure=Measure.EPSILON, amount=Fraction(1)).share(Fraction(1, 3)).amount
    Fraction(1, 3)
    """

    measure: Measure = field(metadata=CONTEXT)
    amount: Fraction = field(metadata=coded(name="budget"))

    def __post_init__(self) -> None:
        # Plans are kept by the budgets that they are made for: equal ones must be the same value.
        object.__setattr__(self, "amount", Fraction(self.amount))
        if not self.amount > 0:
            raise ValueError(f"{self.measure.value}: {self.amount} is not above 0")

    def split(self, shares: Sequence[float] | Floats) -> tuple[Fraction, ...]:
        """The amounts of levels by their shares of sum 1: multiples of 2^-20 of the whole, rounded
        down, so that rounding errors cannot change them. The last one gets the remainder.

        >>> Budget(measure=Measure.RHO, amount=Fraction(2)).split([0.25, 0.75])
        (Fraction(1, 2), Fraction(3, 2))
        """
        # Rounded first, so that a share of just a quarter is one on every machine.
        units = [math.floor(round(share * _SHARE_UNITS, 3)) for share in shares[:-1]]
        units.append(_SHARE_UNITS - sum(units))
        return tuple(self.amount * Fraction(each, _SHARE_UNITS) for each in units)

    def share(self, fraction: Fraction) -> Budget:
        """The budget of a part, 0 < fraction <= 1."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: {fraction} is not above 0 and at most 1")
        return Budget(measure=self.measure, amount=self.amount * fraction)


# Beyond, noise for one unit would not fit in 64-bit counts anyway.
MOST_ROWS = 2**20


class NullUnits(Enum):
    """Treatment of rows whose unit is null; never one unit that all of them share."""

    DROP = "drop"  # left out
    OWN = "own"  # each is a unit of its own


class UnitType(Enum):
    """The type of a unit's values, where files write one value in several ways."""

    INTEGER = "integer"  # 7, 7.0 and the strings "7", "007", "7.0" are one unit
    TEXT = "text"  # strings as they are written


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit(Coded):
    """The difference between neighboring data sets, and the bounds on how much of it a tree counts.

    Args:
        neighbors: the neighboring relation: a unit more, or a unit with other rows.
        columns: whose values name the unit; none where it is the row.
        rows: c, the most rows of a unit that a tree counts, over all its keys.
        keys: m, the most keys of a unit in a tree with a group-by; None: as many as it has rows.
        rows_per_key: r, the most rows of a unit under one key; None: as many as it has rows.
        nulls: what rows are whose unit is null.
        type: of the values of its columns; what is none of it is null. None: as files store them.

    Raises:
        Refusal: a bound that is no whole number from 1 to 2^20, or bounds of a unit that is a row;
            a type beside null units that are each their own: many rows of one value that is none
            of the type would be many units.

    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10,
    ...                      keys=3, rows_per_key=2)
    >>> person.moved(keyed=True), person.moved(keyed=False)
    ((6, 12), (10, 100))
    """

    neighbors: Neighbors
    columns: tuple[str, ...] = ()
    rows: int = 1
    keys: int | None = None
    rows_per_key: int | None = None
    nulls: NullUnits = NullUnits.DROP
    # Not written where it is not declared, as in plans of earlier versions.
    type: UnitType | None = field(default=None, metadata=coded(omit=None))

    def __post_init__(self) -> None:
        bounds = {"rows": self.rows, "keys": self.keys, "rows_per_key": self.rows_per_key}
        for name, bound in bounds.items():
            if bound is None:
                continue
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise Refusal(name, f"{bound!r} is not a whole number")
            if not 1 <= bound <= MOST_ROWS:
                raise Refusal(name, f"{bound} is not from 1 to {MOST_ROWS}")
            if self.is_row and bound != 1:
                raise Refusal(name, f"{bound} has no effect where the unit is the row")
        if len(set(self.columns)) < len(self.columns):
            raise Refusal("columns", "a column is listed twice")
        if self.type is not None and (self.is_row or self.nulls is NullUnits.OWN):
            raise Refusal(
                "type",
                "needs a unit that is not the row"
                if self.is_row
                else "does not go with null units of their own: many rows of one value that is no "
                f"{self.type.value} would be many units; drop them",
            )

    @property
    def is_row(self) -> bool:
        """Whether each row is a unit: nothing is bounded, since nothing needs to be."""
        return not self.columns

    @property
    def name(self) -> str:
        """The row, or the columns."""
        return ", ".join(self.columns) or "row"

    @property
    def in_words(self) -> str:
        """The unit and its bounds, for a person.

        >>> PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3).in_words
        'user, at most 10 rows and 3 keys of each'
        """
        return self.name if self.is_row else f"{self.name}, {self.bounds_in_words} of each"

    @property
    def bounds_in_words(self) -> str:
        """Describe how much of a unit is counted."""
        bounds = [_several(self.rows, "row")]
        if self.keys is not None:
            bounds.append(_several(self.keys, "key"))
        if self.rows_per_key is not None:
            bounds.append(f"{_several(self.rows_per_key, 'row')} a key")
        return f"at most {' and '.join(bounds)}"

    @property
    def substitutes(self) -> bool:
        """Whether neighbors differ in the rows of a unit, not in whether it is there."""
        return self.neighbors is Neighbors.SUBSTITUTE

    @property
    def once(self) -> PrivacyUnit:
        """The unit where a tree counts each once, however many rows it has."""
        return replace(self, rows=1, keys=None, rows_per_key=None)

    @property
    def once_per_key(self) -> PrivacyUnit:
        """The unit where a tree counts each once under each of at most m keys, however many rows it
        has there: so many keys as its bounds of keys and rows both allow.

        >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
        >>> person.once_per_key.moved(keyed=True)
        (3, 3)
        """
        keys = min(self.rows, self.keys or self.rows)
        return replace(self, rows=keys, keys=keys, rows_per_key=1)

    def holds(self, other: PrivacyUnit) -> bool:
        """Whether another is the same unit, and no more of it is counted.

        >>> from dataclasses import replace
        >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=9, keys=3)
        >>> two, four = (replace(person, rows=n, keys=n, rows_per_key=1) for n in (2, 4))
        >>> person.holds(person.once), person.holds(two), person.holds(four)
        (True, True, False)
        """
        if other in (self, self.once):
            return True
        # One row under each of its keys, no more keys than this one has.
        keys = other.rows
        return keys <= min(self.rows, self.keys or self.rows) and other == replace(
            self, rows=keys, keys=keys, rows_per_key=1
        )

    @property
    def drops_rows(self) -> bool:
        """Whether rows of a unit may be left out, so that the number of those that are counted is
        never public."""
        return not self.is_row

    def heaviest(self, *, keyed: bool) -> tuple[int, int, int]:
        """The unit that moves the counts of a level most: q nodes with r of its rows each, and one
        node with the rest.

        A unit has at most c rows, and without keys all may lie in one node: q = 1, r = c. With at
        most r rows under a key and m keys it has c' = min(c, m r). A node belongs to one key, so at
        most r rows lie in it; the vectors of counts sum to at most c' and have no entry above
        r; their hull has the corners with q = floor(c' / r) entries r and one that is the rest.
        A convex function of the counts, as a norm is, is largest at a corner.

        Args:
            keyed: there is a tree for each key.

        Returns:
            (q, r, rest), rest below r.
        """
        if not keyed:
            return 1, self.rows, 0
        per_key = min(self.rows_per_key or self.rows, self.rows)
        rows = self.rows if self.keys is None else min(self.rows, self.keys * per_key)
        full, rest = divmod(rows, per_key)
        return full, per_key, rest

    def moved(self, *, keyed: bool) -> tuple[int, int]:
        """The most that one unit's rows add to the counts of one level: L1, and squared L2.

        Both are attained by the `heaviest`: c' = q r + rest, and q r^2 + rest^2.

        Args:
            keyed: there is a tree for each key.

        Source: the design, section 4.
        """
        full, per_key, rest = self.heaviest(keyed=keyed)
        return full * per_key + rest, full * per_key**2 + rest**2

    def spec(self) -> dict[str, Any]:
        """Return the entries of a specification, plain JSON values: the neighboring relation, and
        what differs from a row.

        >>> ADD_REMOVE_ROW.spec()
        {'neighbors': 'add_remove'}
        """
        unit = super().spec()
        relation = {"neighbors": unit.pop("neighbors")}
        return relation if self.is_row else relation | {"unit": unit}

    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> PrivacyUnit:
        """Read the relation, and the unit; "row" is the row too.

        Raises:
            ValueError: as `Coded.from_spec`, of the entries of the unit too.
        """
        neighbors, unit = Neighbors(left.pop("neighbors")), left.pop("unit", "row")
        if unit == "row":
            return cls(neighbors=neighbors)
        if not isinstance(unit, Mapping):
            raise Refusal.from_value("unit", f"{unit!r} must be 'row' or an object.")
        known = [each.name for each in fields(cls) if each.name != "neighbors"]
        if unknown := [name for name in unit if name not in known]:
            raise ValueError(f"{unknown[0]!r} is not a field of the unit: use {', '.join(known)}.")
        return super().from_entries({**unit, "neighbors": neighbors.value})


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number > 1)}"


ADD_REMOVE_ROW = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE)
SUBSTITUTE_ROW = PrivacyUnit(neighbors=Neighbors.SUBSTITUTE)
ROW_UNITS = (ADD_REMOVE_ROW, SUBSTITUTE_ROW)
