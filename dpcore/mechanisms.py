"""The mechanisms of trees of known leaves: the one place that names them, by strings.

A new mechanism is a module with a `Mechanism` and a `Planner`, and an entry in both tables. A
module is imported when a configuration or a release names its mechanism.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CHOICE, _IRREGULAR = "levels.mechanism_choice", "levels.irregular"
_WHOLE_LEVELS, _HIERARCHY = "levels.planner:WholeLevels", "levels.hierarchy:IrregularLevels"
_ADAPTIVE_MECHANISM = "adaptive.mechanism:AdaptiveMechanism"
# Names in a configuration; and, in none, of the whole levels that "planned" falls back to.
PLANNED, TREE, ADAPTIVE, LEVELS = "planned", "tree", "adaptive", "levels"
EXPONENTIAL, FACTORISED, THRESHOLDS = "exponential", "factorised", "thresholds"

# For each kind of domain, the place of the planner of each name in a configuration.
PLANNERS: dict[str, dict[str, str]] = {
    "ordered": {
        PLANNED: f"{_CHOICE}:OrderedChoice",
        TREE: _WHOLE_LEVELS,
        "binary": _WHOLE_LEVELS,
        "histogram": _WHOLE_LEVELS,
        "independent": _WHOLE_LEVELS,
        ADAPTIVE: "adaptive.planner:AdaptiveTree",
        EXPONENTIAL: "exponential.question:ExponentialQuantiles",
        FACTORISED: "factorised.mechanism:WeightedSums",
    },
    "hierarchy": {
        PLANNED: "levels.hierarchy:HierarchyChoice",
        TREE: _HIERARCHY,
        THRESHOLDS: "levels.hierarchy:Thresholds",
        ADAPTIVE: "adaptive.hierarchy_planner:AdaptiveHierarchy",
    },
}
# For each kind of domain, the place of the class of each kind of mechanism in specifications.
MECHANISMS: dict[str, dict[str, str]] = {
    "ordered": {
        "ordered": "levels.uniform:UniformMechanism",
        "adaptive": _ADAPTIVE_MECHANISM,
        "factorised": "factorised.mechanism:FactorizedMechanism",
    },
    "hierarchy": {
        "hierarchy": f"{_IRREGULAR}:IrregularMechanism",
        "thresholds": f"{_IRREGULAR}:ThresholdMechanism",
        "adaptive_hierarchy": _ADAPTIVE_MECHANISM,
    },
}
_FALLBACK = {"ordered": _WHOLE_LEVELS, "hierarchy": _HIERARCHY}


def mechanism_names(domain: str) -> tuple[str, ...]:
    """Return the names of the mechanisms in a configuration.

    Args:
        domain: the kind of domain, "ordered" or "hierarchy".

    >>> mechanism_names("hierarchy")
    ('planned', 'tree', 'thresholds', 'adaptive')
    """
    return tuple(PLANNERS[domain])


def find_planner(domain: str, name: str) -> Any:
    """Return the `dpcore.levels.workload.Planner` of a mechanism.

    Args:
        domain: the kind of domain.
        name: in a configuration; or `LEVELS`.

    Raises:
        KeyError: there is no such mechanism.
    """
    return load(_FALLBACK[domain] if name == LEVELS else PLANNERS[domain][name])()


def find_mechanism(domain: str, kind: str) -> Any:
    """Return the class of a mechanism in a specification.

    Args:
        domain: the kind of domain.
        kind: of the mechanism.

    Raises:
        KeyError: there is no such mechanism.
    """
    return load(MECHANISMS[domain][kind])


def load(place: str) -> Any:
    """Import a name of dpcore.

    Args:
        place: the module in dpcore, a colon, and the name.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(f"dptrees.dpcore.{module}"), name)
