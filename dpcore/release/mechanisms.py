"""The registry of mechanisms: the only place above their packages that names them.

A mechanism measures a tree of known leaves (`dpcore.questions.mechanism.Mechanism`). It goes with
one kind of domain; `dpcore.release.kinds` has the domains.
"""

from __future__ import annotations

from typing import Any

from dpcore.adaptive.mechanism import AdaptiveMechanism
from dpcore.factorised.mechanism import FactorizedMechanism
from dpcore.levels.irregular import IrregularMechanism
from dpcore.levels.thresholds import ThresholdMechanism
from dpcore.levels.uniform import UniformMechanism
from dpcore.questions.mechanism import Mechanism

# For each kind of domain, by the name in specifications; the first is that of those that name none.
MECHANISMS: dict[str, dict[str, type[Mechanism[Any, Any]]]] = {
    "ordered": {
        "ordered": UniformMechanism,
        "adaptive": AdaptiveMechanism,
        "factorised": FactorizedMechanism,
    },
    "hierarchy": {
        "hierarchy": IrregularMechanism,
        "adaptive_hierarchy": AdaptiveMechanism,
    },
}


def mechanism_from_entries(
    domain: str, left: dict[str, Any], **context: Any
) -> Mechanism[Any, Any]:
    """Read the mechanism of a specification, and remove its entries.

    Args:
        domain: the kind of its domain.
        left: the entries of the whole specification.
        **context: the privacy unit, the measure of the budget, and the shape of a hierarchy's tree.

    Raises:
        KeyError: there is no such mechanism.
    """
    mechanism, keyed = MECHANISMS[domain][str(left.get("kind", domain))], left["keys"] is not None
    if "thresholds" in left and mechanism is IrregularMechanism:
        # Both are named "hierarchy" in specifications; thresholds have the unit among theirs.
        return ThresholdMechanism.from_entries(left, keyed=keyed, tree=context["tree"])
    return mechanism.from_entries(left, keyed=keyed, **context)
