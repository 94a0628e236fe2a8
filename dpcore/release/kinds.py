"""The registries of kinds of trees and of mechanisms: the only place that names them.

A kind is a package with a question, a reader of its specification and the answers about a
release. A mechanism measures a tree of known leaves, and goes with one kind of domain. What a
person sees is registered in the pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Mechanism
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import QUANTILES, ReadPart, Released
from dptrees.dpcore.rows.key_tables import KeyTable

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
        from dptrees.dpcore.levels.irregular import ThresholdMechanism

        # Both are named "hierarchy" in specifications; thresholds have the unit among theirs.
        return ThresholdMechanism.from_entries(left, keyed=keyed, tree=context["tree"])
    return imported().from_entries(left, keyed=keyed, **context)


Spec = Mapping[str, Any]
# From the digest of a universe to the universe, of a table of keys to the table.
ReadUniverse = Callable[[str], Universe]
ReadKeys = Callable[[str], KeyTable]
# What trees concluded, by the name of the table.
Tables = Mapping[str, pa.Table]


class ReadTerms(NamedTuple):
    """Terms that the specification of a question shares with its release, needed to read it.

    Attributes:
        unit: what neighbors differ in.
        measure: of the question's budget.
        read_universe: gives what the specification names by digest; None: it is not at hand.
    """

    unit: PrivacyUnit
    measure: Measure
    read_universe: ReadUniverse | None


class TreeKind(NamedTuple):
    """A kind of tree.

    Attributes:
        question: of a specification, as `Question.spec` writes it.
        released: the answers about a question, from its parts and from what it concluded.
    """

    question: Callable[[Spec, ReadTerms], Question]
    released: Callable[[Any, ReadPart, Tables], Released]


# Every kind is imported when a release first has one: all of them take longer than most queries.


def _read_ordered(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.ordered.question import ordered_question_from_spec

    return ordered_question_from_spec(
        spec,
        terms.unit,
        lambda left, unit: mechanism_from_entries(
            "ordered", left, unit=unit, measure=terms.measure
        ),
    )


def _released_ordered(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.ordered.released import ReleasedCdf

    return ReleasedCdf(question, read, tables.get(QUANTILES))


def _read_hierarchy(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.hierarchy.question import hierarchy_question_from_spec

    if terms.read_universe is None:
        raise ValueError(f"trees: the universe of {spec['name']} is not at hand")
    context = {"unit": terms.unit, "measure": terms.measure}
    return hierarchy_question_from_spec(
        spec,
        terms.read_universe(spec["domain"]["universe"]),
        lambda left, domain: mechanism_from_entries(
            "hierarchy", left, tree=domain.tree.shape, **context
        ),
    )


def _released_hierarchy(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.hierarchy.question import ReleasedHierarchy

    return ReleasedHierarchy(question, read)


def _read_sparse(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.sparse.question import SparseQuestion

    return SparseQuestion.from_spec(spec)


def _released_sparse(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.sparse.released import ReleasedSparse

    return ReleasedSparse(question, read)


def _read_selection(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.choices.key_selection import SelectionQuestion

    return SelectionQuestion.from_spec(spec, unit=terms.unit)


def _released_selection(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.choices.key_selection import ReleasedSelection

    return ReleasedSelection(question, read)


def _read_bound(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.choices.unit_bounds import BoundQuestion

    return BoundQuestion.from_spec(spec, unit=terms.unit.once, measure=terms.measure)


def _released_bound(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.choices.unit_bounds import ReleasedBound

    return ReleasedBound(question, read)


def _read_value_bounds(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.choices.value_bounds import ValueBoundsQuestion

    return ValueBoundsQuestion.from_spec(spec, unit=terms.unit.once, measure=terms.measure)


def _released_value_bounds(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.choices.value_bounds import ReleasedValueBounds

    return ReleasedValueBounds(question, read)


def _read_exponential(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.exponential.question import exponential_question_from_spec

    return exponential_question_from_spec(spec, terms.unit, terms.measure)


def _released_exponential(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.exponential.question import ReleasedQuantiles

    return ReleasedQuantiles(question, tables[QUANTILES])


def _read_hypercube(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.boxes.question import HypercubeQuestion

    return HypercubeQuestion.from_spec(spec)


def _released_hypercube(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.boxes.released import ReleasedHypercube

    return ReleasedHypercube(question, read)


def _read_table(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.tables.question import table_question_from_spec

    return table_question_from_spec(spec, terms.unit, terms.measure)


def _released_table(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.tables.released import ReleasedTable

    return ReleasedTable(question, read)


def _read_distinct(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.distinct import distinct_question_from_spec

    return distinct_question_from_spec(spec, terms.unit, terms.measure)


def _released_distinct(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.distinct import ReleasedDistinct

    return ReleasedDistinct(question, read)


def _read_mean(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.mean import mean_question_from_spec

    return mean_question_from_spec(spec, terms.unit, terms.measure)


def _released_mean(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.mean import ReleasedMean

    return ReleasedMean(question, read)


def _read_series(spec: Spec, terms: ReadTerms) -> Question:
    from dptrees.dpcore.series.workload import series_question_from_spec

    return series_question_from_spec(spec, lambda level: find_kind(level).question(level, terms))


def _released_series(question: Any, read: ReadPart, tables: Tables) -> Released:
    from dptrees.dpcore.series.released import own_period

    return own_period(question, read, tables, lambda tree: kind_named(tree.kind).released)


KINDS: dict[str, TreeKind] = {
    "ordered": TreeKind(_read_ordered, _released_ordered),
    "hierarchy": TreeKind(_read_hierarchy, _released_hierarchy),
    "sparse": TreeKind(_read_sparse, _released_sparse),
    "selection": TreeKind(_read_selection, _released_selection),
    "bound": TreeKind(_read_bound, _released_bound),
    "value_bounds": TreeKind(_read_value_bounds, _released_value_bounds),
    "exponential": TreeKind(_read_exponential, _released_exponential),
    "hypercube": TreeKind(_read_hypercube, _released_hypercube),
    "table": TreeKind(_read_table, _released_table),
    "distinct": TreeKind(_read_distinct, _released_distinct),
    "mean": TreeKind(_read_mean, _released_mean),
    "series": TreeKind(_read_series, _released_series),
}


def kind_named(name: str) -> TreeKind:
    """Return the kind of questions of a name (`Question.kind`): their own, or their domain's.

    >>> kind_named("adaptive") is KINDS["ordered"]
    True
    """
    domains = (domain for domain, mechanisms in MECHANISMS.items() if name in mechanisms)
    return KINDS[next(domains, name)]


def find_kind(spec: Spec) -> TreeKind:
    """Return the kind of a specification: the one that it names, else that of its domain.

    >>> find_kind({"domain": {"kind": "integer"}}) is KINDS["ordered"]
    True
    """
    if "kind" in spec:
        return kind_named(str(spec["kind"]))
    return KINDS.get(str(spec["domain"].get("kind")), KINDS["ordered"])
