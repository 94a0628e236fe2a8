"""The registry of mechanisms: the only place above their packages that names them.

A mechanism measures a tree of known leaves (`dpcore.questions.mechanism.Mechanism`). It goes with
one kind of domain; `dpcore.release.kinds` has the domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpcore.adaptive.mechanism import adaptive_mechanism_from_spec
from dpcore.factorised.mechanism import factorised_mechanism_from_spec
from dpcore.levels.irregular import irregular_mechanism_from_spec
from dpcore.levels.thresholds import threshold_mechanism_from_spec
from dpcore.levels.uniform import uniform_mechanism_from_spec
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.mechanism import Mechanism
from dpcore.trees.irregular import IrregularTree

# Reads a mechanism from a specification, for a privacy unit and a measure of its budget; those of
# hierarchies take the shape of the tree too.
ReadMechanism = Callable[..., Mechanism[Any, Any]]


def _measured_levels(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure, tree: IrregularTree
) -> Mechanism[Any, Any]:
    # Both are named "hierarchy" in specifications.
    if "thresholds" in spec:
        return threshold_mechanism_from_spec(spec, tree)
    return irregular_mechanism_from_spec(spec, unit, measure, tree)


# For each kind of domain, by the name in specifications; the first is that of those that name none.
MECHANISMS: dict[str, dict[str, ReadMechanism]] = {
    "ordered": {
        "ordered": uniform_mechanism_from_spec,
        "adaptive": adaptive_mechanism_from_spec,
        "factorised": factorised_mechanism_from_spec,
    },
    "hierarchy": {
        "hierarchy": _measured_levels,
        "adaptive_hierarchy": adaptive_mechanism_from_spec,
    },
}


def mechanism_reader(domain: str, spec: Mapping[str, Any]) -> ReadMechanism:
    """Return what reads the mechanism of a specification.

    Args:
        domain: the kind of its domain.
        spec: plain JSON values.

    Raises:
        KeyError: there is no such mechanism.
    """
    return MECHANISMS[domain][str(spec.get("kind", domain))]
