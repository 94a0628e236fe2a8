"""The registry of mechanisms: the only place above their packages that names them.

A mechanism measures a tree of known leaves (`dpcore.questions.mechanism.Mechanism`). It goes with
one kind of domain; `dpcore.release.kinds` has the domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dptrees.dpcore.questions.mechanism import Mechanism

AnyMechanism = type[Mechanism[Any, Any]]

# Each is imported when a release first has it: all of them take longer than most queries.


def _uniform() -> AnyMechanism:
    from dptrees.dpcore.levels.uniform import UniformMechanism

    return UniformMechanism


def _irregular() -> AnyMechanism:
    from dptrees.dpcore.levels.irregular import IrregularMechanism

    return IrregularMechanism


def _adaptive() -> AnyMechanism:
    from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism

    return AdaptiveMechanism


def _factorized() -> AnyMechanism:
    from dptrees.dpcore.factorised.mechanism import FactorizedMechanism

    return FactorizedMechanism


# For each kind of domain, by the name in specifications, what imports the mechanism; one without a
# name has the first.
MECHANISMS: dict[str, dict[str, Callable[[], AnyMechanism]]] = {
    "ordered": {"ordered": _uniform, "adaptive": _adaptive, "factorised": _factorized},
    "hierarchy": {"hierarchy": _irregular, "adaptive_hierarchy": _adaptive},
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
    imported = MECHANISMS[domain][name]
    if "thresholds" in left and imported is _irregular:
        from dptrees.dpcore.levels.thresholds import ThresholdMechanism

        # Both are named "hierarchy" in specifications; thresholds have the unit among theirs.
        return ThresholdMechanism.from_entries(left, keyed=keyed, tree=context["tree"])
    return imported().from_entries(left, keyed=keyed, **context)
