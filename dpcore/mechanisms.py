"""The mechanisms of trees of known leaves: the one place that names them, by strings.

A new mechanism is a module with a `Mechanism` and a `Planner`, and an entry in both tables. A
module is imported when a configuration or a release names its mechanism.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CHOICE, _IRREGULAR = "levels.mechanism_choice", "levels.irregular"
_WHOLE_LEVELS, _HIERARCHY = "levels.planner:WholeLevels", "levels.hierarchy:IrregularLevels"
_ADAPTIVE = "adaptive.mechanism:AdaptiveMechanism"
# The name of the whole levels that "planned" falls back to; it is in no configuration.
LEVELS = "levels"

# For each kind of domain, the place of the planner of each name in a configuration.
PLANNERS: dict[str, dict[str, str]] = {
    "ordered": {
        "planned": f"{_CHOICE}:OrderedChoice",
        "tree": _WHOLE_LEVELS,
        "binary": _WHOLE_LEVELS,
        "histogram": _WHOLE_LEVELS,
        "independent": _WHOLE_LEVELS,
        "adaptive": "adaptive.planner:AdaptiveTree",
        "exponential": "exponential.question:ExponentialQuantiles",
        "factorised": "factorised.mechanism:WeightedSums",
    },
    "hierarchy": {
        "planned": f"{_CHOICE}:HierarchyChoice",
        "tree": _HIERARCHY,
        "thresholds": "levels.hierarchy:Thresholds",
        "adaptive": "adaptive.hierarchy_planner:AdaptiveHierarchy",
    },
}
# For each kind of domain, the place of the class of each kind of mechanism in specifications.
MECHANISMS: dict[str, dict[str, str]] = {
    "ordered": {
        "ordered": "levels.uniform:UniformMechanism",
        "adaptive": _ADAPTIVE,
        "factorised": "factorised.mechanism:FactorizedMechanism",
    },
    "hierarchy": {
        "hierarchy": f"{_IRREGULAR}:IrregularMechanism",
        "thresholds": f"{_IRREGULAR}:ThresholdMechanism",
        "adaptive_hierarchy": _ADAPTIVE,
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
    """Return the `dpcore.questions.planning.Planner` of a mechanism.

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
