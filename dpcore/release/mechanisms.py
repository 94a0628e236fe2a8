"""The registry of mechanisms: the only place above their packages that names them.

A mechanism measures a tree of known leaves (`dpcore.questions.mechanism.Mechanism`). It goes with
one kind of domain; `dpcore.release.kinds` has the domains.
"""

from __future__ import annotations

from typing import Any

from dpcore.questions.mechanism import Mechanism

# For each kind of domain, by the name in specifications; one without a name has the first.
MECHANISM_NAMES: dict[str, tuple[str, ...]] = {
    "ordered": ("ordered", "adaptive", "factorised"),
    "hierarchy": ("hierarchy", "adaptive_hierarchy"),
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
    name, keyed = str(left.get("kind", domain)), left["keys"] is not None
    if name not in MECHANISM_NAMES[domain]:
        raise KeyError(name)
    # Each is imported when it is first read: all of them take longer than most queries.
    if name in ("adaptive", "adaptive_hierarchy"):
        from dpcore.adaptive.mechanism import AdaptiveMechanism

        return AdaptiveMechanism.from_entries(left, keyed=keyed, **context)
    if name == "factorised":
        from dpcore.factorised.mechanism import FactorizedMechanism

        return FactorizedMechanism.from_entries(left, keyed=keyed, **context)
    if name == "ordered":
        from dpcore.levels.uniform import UniformMechanism

        return UniformMechanism.from_entries(left, keyed=keyed, **context)
    if "thresholds" in left:
        from dpcore.levels.thresholds import ThresholdMechanism

        # Both are named "hierarchy" in specifications; thresholds have the unit among theirs.
        return ThresholdMechanism.from_entries(left, keyed=keyed, tree=context["tree"])
    from dpcore.levels.irregular import IrregularMechanism

    return IrregularMechanism.from_entries(left, keyed=keyed, **context)
