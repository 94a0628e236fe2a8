"""The registry of kinds of questions: the only place above their packages that names them.

A kind is a package with a question (`dpcore.questions.question.Question`), a reader of its
specification and the answers about a release. How questions of known leaves are measured,
`dpcore.release.mechanisms` names; what a person sees, `pipelines.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from dpcore.distinct.question import distinct_question_from_spec
from dpcore.distinct.released import ReleasedDistinct
from dpcore.exponential.question import exponential_question_from_spec
from dpcore.exponential.released import ReleasedQuantiles
from dpcore.hierarchy.question import hierarchy_question_from_spec
from dpcore.hierarchy.released import ReleasedHierarchy
from dpcore.hierarchy.universe import Universe
from dpcore.hypercube.question import HypercubeQuestion
from dpcore.hypercube.released import ReleasedHypercube
from dpcore.mean.question import mean_question_from_spec
from dpcore.mean.released import ReleasedMean
from dpcore.ordered.question import ordered_question_from_spec
from dpcore.ordered.released import ReleasedCdf
from dpcore.privacy.budget import Measure
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.question import Question
from dpcore.questions.released import ReadPart, Released
from dpcore.questions.tables import QUANTILES
from dpcore.release.mechanisms import MECHANISMS, mechanism_from_entries
from dpcore.rows.key_table import KeyTable
from dpcore.selection.question import ReleasedSelection, SelectionQuestion
from dpcore.series.question import SeriesQuestion
from dpcore.series.released import own_period
from dpcore.series.separate import series_question_from_spec
from dpcore.sparse.question import SparseQuestion
from dpcore.sparse.released import ReleasedSparse
from dpcore.table.question import table_question_from_spec
from dpcore.table.released import ReleasedTable
from dpcore.unit_bounds.question import BoundQuestion, ReleasedBound
from dpcore.value_bounds.question import ReleasedValueBounds, ValueBoundsQuestion

Spec = Mapping[str, Any]
# From the digest of a universe to the universe, of a table of keys to the table.
ReadUniverse = Callable[[str], Universe]
ReadKeys = Callable[[str], KeyTable]


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
    released: Callable[[Any, ReadPart, Mapping[str, pa.Table]], Released]


def _ordered(spec: Spec, terms: ReadTerms) -> Question:
    return ordered_question_from_spec(
        spec,
        terms.unit,
        lambda left, unit: mechanism_from_entries(
            "ordered", left, unit=unit, measure=terms.measure
        ),
    )


def _hierarchy(spec: Spec, terms: ReadTerms) -> Question:
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


def _series(spec: Spec, terms: ReadTerms) -> Question:
    return series_question_from_spec(spec, lambda level: find_kind(level).question(level, terms))


def _released_period(
    question: SeriesQuestion, read: ReadPart, tables: Mapping[str, pa.Table]
) -> Released:
    return own_period(question, read, tables, lambda tree: kind_named(tree.kind).released)


KINDS: dict[str, TreeKind] = {
    "ordered": TreeKind(
        _ordered,
        lambda question, read, tables: ReleasedCdf(question, read, tables.get(QUANTILES)),
    ),
    "hierarchy": TreeKind(
        _hierarchy, lambda question, read, tables: ReleasedHierarchy(question, read)
    ),
    "sparse": TreeKind(
        lambda spec, terms: SparseQuestion.from_spec(spec),
        lambda question, read, tables: ReleasedSparse(question, read),
    ),
    "selection": TreeKind(
        lambda spec, terms: SelectionQuestion.from_spec(spec, unit=terms.unit),
        lambda question, read, tables: ReleasedSelection(question, read),
    ),
    "bound": TreeKind(
        lambda spec, terms: BoundQuestion.from_spec(
            spec, unit=terms.unit.once, measure=terms.measure
        ),
        lambda question, read, tables: ReleasedBound(question, read),
    ),
    "value_bounds": TreeKind(
        lambda spec, terms: ValueBoundsQuestion.from_spec(
            spec, unit=terms.unit.once, measure=terms.measure
        ),
        lambda question, read, tables: ReleasedValueBounds(question, read),
    ),
    "exponential": TreeKind(
        lambda spec, terms: exponential_question_from_spec(spec, terms.unit, terms.measure),
        lambda question, read, tables: ReleasedQuantiles(question, tables[QUANTILES]),
    ),
    "hypercube": TreeKind(
        lambda spec, terms: HypercubeQuestion.from_spec(spec),
        lambda question, read, tables: ReleasedHypercube(question, read),
    ),
    "table": TreeKind(
        lambda spec, terms: table_question_from_spec(spec, terms.unit, terms.measure),
        lambda question, read, tables: ReleasedTable(question, read),
    ),
    "distinct": TreeKind(
        lambda spec, terms: distinct_question_from_spec(spec, terms.unit, terms.measure),
        lambda question, read, tables: ReleasedDistinct(question, read),
    ),
    "mean": TreeKind(
        lambda spec, terms: mean_question_from_spec(spec, terms.unit, terms.measure),
        lambda question, read, tables: ReleasedMean(question, read),
    ),
    "series": TreeKind(_series, _released_period),
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
