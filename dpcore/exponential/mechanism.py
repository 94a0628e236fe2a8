"""The exponential mechanism for quantiles, as what a question holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from dptrees.dpcore.codec import INLINE
from dptrees.dpcore.exponential.forest import ExponentialForest
from dptrees.dpcore.exponential.places import PLACES
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.questions.mechanism import ChunkLayout, Mechanism


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(Mechanism[ExponentialForest, Any]):
    """Quantiles alone, chosen one after the other; there are no nodes and no intervals of counts.

    Args:
        plan: the quantiles, and what the choice of each spends.
    """

    written = ("kind", "plan", "places")
    leading = ("kind", "budget", "places")
    # Of quantiles inside a cell; another number makes another law.
    places: ClassVar[int] = PLACES

    plan: ExponentialPlan = field(metadata=INLINE)

    @property
    def kind(self) -> str:
        return "exponential"

    @property
    def public_total(self) -> bool:
        """False: no number of rows is released."""
        return False

    def forest(self, layout: ChunkLayout) -> ExponentialForest:
        return ExponentialForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> NoReturn:
        raise TypeError("exponential: quantiles have no half-widths")

    def intervals(self, forest: ExponentialForest, widths: Any) -> NoReturn:
        raise TypeError("exponential: there are no nodes")

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        return {"mechanism": self.kind}
