"""The privacy unit: what two neighbouring data sets differ in, and how much of it is counted.

A unit is a row, or all rows that agree in some columns: a person, a device, an aircraft. Rows of a
unit beyond its bounds are left out before anything is counted (`dpcore.rows.bounding`), so that
what one unit moves is bounded whatever the data are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dpcore.privacy.budget import Neighbors
from dpcore.refusal import Refusal

# Beyond, noise for one unit would not fit in 64-bit counts anyway.
MOST_ROWS = 2**20


class NullUnits(Enum):
    """What rows are whose unit is null; never one unit that all of them share."""

    DROP = "drop"  # left out
    OWN = "own"  # each is a unit of its own


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """What neighbouring data sets differ in, and how much of it a tree counts.

    Args:
        neighbors: the neighbouring relation: a unit more, or a unit with other rows.
        columns: whose values name the unit; none where it is the row.
        rows: c, the most rows of a unit that a tree counts, over all its keys.
        keys: m, the most keys of a unit in a tree with a group-by; None: as many as it has rows.
        rows_per_key: r, the most rows of a unit under one key; None: as many as it has rows.
        nulls: what rows are whose unit is null.

    Raises:
        Refusal: a bound that is no whole number from 1 to 2^20, or bounds of a unit that is a row.

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
                raise Refusal(name, f"{bound} stands for nothing where the unit is the row")
        if len(set(self.columns)) < len(self.columns):
            raise Refusal("columns", "a column stands twice")

    @property
    def is_row(self) -> bool:
        """Whether each row is a unit: nothing is bounded, since nothing needs to be."""
        return not self.columns

    @property
    def drops_rows(self) -> bool:
        """Whether rows of a unit may be left out, so that the number of those that are counted is
        never public."""
        return not self.is_row

    def moved(self, *, keyed: bool) -> tuple[int, int]:
        """The most that one unit's rows add to the counts of one level: L1, and squared L2.

        A unit has at most c rows, so without keys L1 = c; all may lie in one node, L2^2 = c^2.
        With at most r rows under a key and m keys, L1 = c' = min(c, m r). A node belongs to one
        key, so at most r rows lie in it. The square is convex, so the sum of squares of counts
        that sum to at most c', each at most r, is largest where as many as can be are r, q =
        floor(c' / r), and one is the rest: L2^2 = q r^2 + (c' - q r)^2. Both are attained, with
        the rows of each key in one node.

        Args:
            keyed: there is a tree for each key.

        Source: the design, section 4.
        """
        if not keyed:
            return self.rows, self.rows**2
        per_key = min(self.rows_per_key or self.rows, self.rows)
        rows = self.rows if self.keys is None else min(self.rows, self.keys * per_key)
        full, rest = divmod(rows, per_key)
        return rows, full * per_key**2 + rest**2

    def spec(self) -> dict[str, object]:
        """As plain JSON values, without the relation."""
        return {
            "columns": list(self.columns),
            "rows": self.rows,
            "keys": self.keys,
            "rows_per_key": self.rows_per_key,
            "nulls": self.nulls.value,
        }

    @classmethod
    def from_spec(cls, neighbors: Neighbors, spec: Mapping[str, object] | str) -> PrivacyUnit:
        """The inverse of `spec`; "row" is the row."""
        if isinstance(spec, str):
            return cls(neighbors=neighbors)
        columns, nulls = spec["columns"], NullUnits(spec["nulls"])
        assert isinstance(columns, list)
        bounds = {name: spec[name] for name in ("rows", "keys", "rows_per_key")}
        return cls(neighbors=neighbors, columns=tuple(columns), nulls=nulls, **bounds)  # type: ignore[arg-type]
