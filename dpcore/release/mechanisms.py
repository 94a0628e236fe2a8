"""The registry of mechanisms: the only place above their packages that names them.

A mechanism measures a tree of known leaves (`dpcore.questions.mechanism.Mechanism`). It is named in
specifications, and goes with one kind of domain: `dpcore.release.kinds` has the domains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from dpcore.adaptive.mechanism import adaptive_mechanism_from_spec
from dpcore.factorised.mechanism import factorised_mechanism_from_spec
from dpcore.levels.irregular import irregular_mechanism_from_spec
from dpcore.levels.thresholds import threshold_mechanism_from_spec
from dpcore.levels.uniform import uniform_mechanism_from_spec
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.mechanism import Mechanism
from dpcore.trees.irregular import IrregularTree
from dpcore.trees.shape import Shape

Spec = Mapping[str, Any]


class ReadMechanism(Protocol):
    """Reads a mechanism from a specification."""

    def __call__(
        self, spec: Spec, unit: PrivacyUnit, measure: Measure, tree: Any = None
    ) -> Mechanism[Any, Any]:
        """Return the mechanism that its `spec` describes.

        Args:
            spec: plain JSON values.
            unit: what neighboring data sets differ in.
            measure: of the budget.
            tree: the shape, where the specification does not hold it.
        """


class MechanismKind(NamedTuple):
    """An entry of the registry.

    Attributes:
        domain: the kind of domain, of `dpcore.release.kinds.KINDS`.
        read: reads the mechanism from a specification.
    """

    domain: str
    read: ReadMechanism


def _uniform(
    spec: Spec, unit: PrivacyUnit, measure: Measure, tree: Shape | None = None
) -> Mechanism[Any, Any]:
    return uniform_mechanism_from_spec(spec, unit, measure)


def _factorised(
    spec: Spec, unit: PrivacyUnit, measure: Measure, tree: Shape | None = None
) -> Mechanism[Any, Any]:
    return factorised_mechanism_from_spec(spec, unit, measure)


def _of_labels(
    spec: Spec, unit: PrivacyUnit, measure: Measure, tree: Any = None
) -> Mechanism[Any, Any]:
    assert isinstance(tree, IrregularTree)
    if "thresholds" in spec:
        return threshold_mechanism_from_spec(spec, tree)
    return irregular_mechanism_from_spec(spec, unit, measure, tree)


# By the name in specifications, which is the question's kind.
MECHANISMS: dict[str, MechanismKind] = {
    "ordered": MechanismKind("ordered", _uniform),
    "adaptive": MechanismKind("ordered", adaptive_mechanism_from_spec),
    "factorised": MechanismKind("ordered", _factorised),
    "hierarchy": MechanismKind("hierarchy", _of_labels),
    "adaptive_hierarchy": MechanismKind("hierarchy", adaptive_mechanism_from_spec),
}


def mechanism_from_spec(
    spec: Spec, default: str, unit: PrivacyUnit, measure: Measure, tree: IrregularTree | None = None
) -> Mechanism[Any, Any]:
    """Return the mechanism of a specification.

    Args:
        spec: plain JSON values.
        default: the mechanism of a specification that names none.
        unit: what neighboring data sets differ in.
        measure: of the budget.
        tree: the shape, where the specification does not hold it.

    Raises:
        KeyError: there is no such mechanism.
    """
    return MECHANISMS[str(spec.get("kind", default))].read(spec, unit, measure, tree)
