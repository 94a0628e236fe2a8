"""The registry of kinds of trees: the only place that names them.

A kind has a question, a reader of its specification and the answers about a release. What a person
sees is registered in the pipelines; `dpcore.mechanisms` names the mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from dptrees.dpcore.mechanisms import MECHANISMS, find_mechanism, load
from dptrees.dpcore.questions.released import QUANTILES, ReadPart, Released

if TYPE_CHECKING:
    from dptrees.dpcore.hierarchy.universe import Universe
    from dptrees.dpcore.ordered.lookup import QuantileLookup
    from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit
    from dptrees.dpcore.questions.planning import Mechanism
    from dptrees.dpcore.questions.question import Question
    from dptrees.dpcore.rows.key_tables import KeyTable


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
    if "thresholds" in left and name == "hierarchy":
        # Both are named "hierarchy" in specifications; thresholds have the unit among theirs.
        name, context = "thresholds", {"tree": context["tree"]}
    found = find_mechanism(domain, name)
    mechanism: Mechanism[Any, Any] = found.from_entries(left, keyed=keyed, **context)
    return mechanism


Spec = Mapping[str, Any]
# From the digest of a universe to the universe, of a table of keys to the table.
ReadUniverse: TypeAlias = "Callable[[str], Universe]"
ReadKeys: TypeAlias = "Callable[[str], KeyTable]"
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
        lookup: the released quantiles of a specification, from the table of quantiles; None: they
            need the question.
    """

    question: Callable[[Spec, ReadTerms], Question]
    released: Callable[[Any, ReadPart, Tables], Released]
    lookup: Callable[[Spec, pa.Table], QuantileLookup] | None = None


def _kind(read: Callable[[Any, Spec, ReadTerms], Question], reader: str, released: str) -> TreeKind:
    """A kind whose answers come from its question and its parts alone.

    Args:
        read: makes the question by what reads it, from a specification.
        reader, released: the places of what reads a question, and of the answers about it.
    """
    imported, answers = partial(load, reader), partial(load, released)
    return TreeKind(
        question=lambda spec, terms: read(imported(), spec, terms),
        released=lambda question, read, tables: answers()(question, read),
    )


def _read_ordered(spec: Spec, terms: ReadTerms) -> Question:
    question: Question = load("ordered.question:ordered_question_from_spec")(
        spec,
        terms.unit,
        lambda left, unit: mechanism_from_entries(
            "ordered", left, unit=unit, measure=terms.measure
        ),
    )
    return question


def _read_hierarchy(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    if terms.read_universe is None:
        raise ValueError(f"trees: the universe of {spec['name']} is not at hand")
    context = {"unit": terms.unit, "measure": terms.measure}
    question: Question = read(
        spec,
        terms.read_universe(spec["domain"]["universe"]),
        lambda left, domain: mechanism_from_entries(
            "hierarchy", left, tree=domain.tree.shape, **context
        ),
    )
    return question


def _by_spec(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    question: Question = read.from_spec(spec)
    return question


def _by_unit(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    question: Question = read(spec, terms.unit, terms.measure)
    return question


def _by_terms(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    question: Question = read.from_spec(spec, unit=terms.unit, measure=terms.measure)
    return question


def _of_first_stage(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    question: Question = read.from_spec(spec, unit=terms.unit.once, measure=terms.measure)
    return question


def _of_keys(read: Any, spec: Spec, terms: ReadTerms) -> Question:
    question: Question = read.from_spec(spec, unit=terms.unit)
    return question


def _read_series(spec: Spec, terms: ReadTerms) -> Question:
    read = load("series.workload:series_question_from_spec")
    question: Question = read(spec, lambda level: find_kind(level).question(level, terms))
    return question


def _released_series(question: Any, read: ReadPart, tables: Tables) -> Released:
    own_period = load("series.released:own_period")
    period: Released = own_period(
        question, read, tables, lambda tree: kind_named(tree.kind).released
    )
    return period


_RELEASED_CDF = partial(load, "ordered.released:ReleasedCdf")
_LOOKUP = partial(load, "ordered.lookup:QuantileLookup")
_RELEASED_QUANTILES = partial(load, "exponential.question:ReleasedQuantiles")
_EXPONENTIAL = partial(load, "exponential.question:exponential_question_from_spec")
KINDS: dict[str, TreeKind] = {
    "ordered": TreeKind(
        _read_ordered,
        lambda question, read, tables: _RELEASED_CDF()(question, read, tables.get(QUANTILES)),
        lambda spec, table: _LOOKUP()(spec, table),
    ),
    "hierarchy": _kind(
        _read_hierarchy,
        "hierarchy.question:hierarchy_question_from_spec",
        "hierarchy.question:ReleasedHierarchy",
    ),
    "sparse": _kind(_by_spec, "sparse.question:SparseQuestion", "sparse.released:ReleasedSparse"),
    "selection": _kind(
        _of_keys,
        "choices.key_selection:SelectionQuestion",
        "choices.key_selection:ReleasedSelection",
    ),
    **{
        kind: _kind(_of_first_stage, question, "choices.unit_bounds:ReleasedBounds")
        for kind, question in (
            ("bound", "choices.unit_bounds:BoundQuestion"),
            ("value_histogram", "choices.value_bounds:ValueBoundsQuestion"),
            ("date_histogram", "choices.value_bounds:DateBoundsQuestion"),
            ("value_bounds", "choices.value_bounds:EarlierBoundsQuestion"),
        )
    },
    "exponential": TreeKind(
        lambda spec, terms: _by_unit(_EXPONENTIAL(), spec, terms),
        lambda question, read, tables: _RELEASED_QUANTILES()(question, tables[QUANTILES]),
    ),
    "hypercube": _kind(
        _by_spec, "boxes.question:HypercubeQuestion", "boxes.released:ReleasedHypercube"
    ),
    "table": _kind(_by_terms, "tables.question:TableQuestion", "tables.released:ReleasedTable"),
    "distinct": _kind(_by_unit, "numbers:number_question_from_spec", "numbers:ReleasedDistinct"),
    "mean": _kind(_by_unit, "numbers:number_question_from_spec", "numbers:ReleasedMean"),
    "sketch": _kind(
        _by_unit, "sketched.question:sketch_question_from_spec", "sketched.released:ReleasedSketch"
    ),
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
