"""Questions about large sparse trees: the specification, what shapes the noise, what is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from tests.dpcore.refusals import check_refusals
from tests.dpcore.sparse.counts import release_plan

DOMAINS: dict[str, SparseDomain] = {
    "addresses": CodeDomain(column="address", widths=(8, 8, 16)),
    "codes": CodeDomain(column="code", widths=(20, 44), notation="hex"),
    "labels": LabelDomain(label_columns=("origin", "dest")),
    "paths": PathDomain(column="url", depth=4),
}
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)


def question(
    form: str = "addresses",
    *,
    domain: SparseDomain | None = None,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    epsilon: Fraction = EPSILON,
    delta: Fraction = DELTA,
    weights: list[int] | None = None,
    **fields: Any,
) -> SparseQuestion:
    domain = domain or DOMAINS[form]
    plan = plan_sparse(domain.names, epsilon, delta, unit, weights=weights)
    return SparseQuestion(**({"name": "heavy", "domain": domain, "plan": plan} | fields))


@pytest.mark.parametrize("form", DOMAINS)
def test_a_specification_is_read_back(form: str) -> None:
    unit = ROW_UNITS[list(DOMAINS).index(form) % 2]
    requested = question(form, unit=unit, prune_below=9, confidence=0.9, shards=5)
    plan = release_plan(requested)
    for spec in (plan.spec(), json.loads(json.dumps(plan.spec(), allow_nan=False))):
        again = plan_from_spec(spec)
        assert again == plan and again.digest == plan.digest and again.spec() == plan.spec()
    assert SparseQuestion.from_spec(json.loads(json.dumps(requested.spec()))) == requested
    travelled = pickle.dumps(requested)
    assert len(travelled) < 3000 and pickle.loads(travelled) == requested


def test_what_shapes_the_noise_changes_the_digest_and_nothing_else_does() -> None:
    base = question()
    others = [
        question(name="other"),
        question(domain=CodeDomain(column="other", widths=(8, 8, 16))),
        question(domain=CodeDomain(column="address", widths=(8, 16, 8))),
        question(domain=CodeDomain(column="address", widths=(8, 8, 16), notation="hex")),
        question("labels"),
        question("paths"),
        question(unit=SUBSTITUTE_ROW),
        question(epsilon=Fraction(999, 1000)),
        question(delta=Fraction(1, 10**7)),
        question(weights=[1, 1, 2]),
        question(shards=15),
    ]
    digests = [release_plan(each).digest for each in (base, *others)]
    assert len(set(digests)) == len(digests)
    same = [
        question(confidence=0.5),
        question(prune_below=100),
        question(weight=Fraction(3)),
    ]
    assert {release_plan(each).digest for each in same} == {digests[0]}


def test_every_part_has_its_place() -> None:
    requested = question(shards=4)
    assert requested.places == [
        (0, 0),
        *((level, shard) for level in (1, 2, 3) for shard in range(4)),
    ]


def test_what_it_spends_and_reads() -> None:
    requested = question("labels")
    assert requested.budget is None and requested.spending.own == (EPSILON, DELTA)
    assert requested.columns == ("origin", "dest")
    assert requested.value_types == {"origin": pa.string(), "dest": pa.string()}
    requested.check_types({"origin": pa.int64(), "dest": pa.dictionary(pa.int32(), pa.string())})
    with pytest.raises(ValueError, match=r"'dest' has type date32.day., but this tree needs texts"):
        requested.check_types({"origin": pa.string(), "dest": pa.date32()})


def test_what_does_not_fit_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"keys": KeyList(column="k", keys=("a",))}, "keys: a sparse tree has none"),
        ({"domain": DOMAINS["labels"]}, "it is of height 3, the domain of 2"),
        ({"shards": 0}, "shards: 0 is not at least 1"),
        ({"prune_below": -1}, "prune_below: -1 is not at least 0"),
        ({"confidence": 0.0}, "confidence: 0.0"),
        ({"confidence": 1.0}, "confidence: 1.0"),
    ]
    check_refusals(partial(replace, question()), rows)
    # A budget whose noise is out of range is refused when it is planned.
    for epsilon, words in (
        (Fraction(1, 2**60), r"it must be at most 2\^40"),
        (Fraction(2**60), r"is below 2\^-40"),
    ):
        with pytest.raises(ValueError, match=f"plan: no noise fits the budget of a level.*{words}"):
            question(epsilon=epsilon)


def test_a_public_total_is_refused() -> None:
    domain = DOMAINS["addresses"]
    plan = plan_sparse(domain.names, EPSILON, DELTA, SUBSTITUTE_ROW, public_total=True)
    with pytest.raises(ValueError, match="the total is not public where rows may be dropped"):
        SparseQuestion(name="heavy", domain=domain, plan=plan)
