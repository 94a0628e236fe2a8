"""Small releases of every kind of tree that protect a person with many rows."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.privacy.unit import Neighbors, NullUnits, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.sketched.question import SketchQuestion
from dptrees.dpcore.sketches.sketch import SketchKind
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan
from tests.dpcore.threshold_questions import make_stated_plan, threshold_question
from tests.transforms import every_kind
from tests.transforms.box_questions import box_question, sketched, table_question
from tests.transforms.every_kind import RACES, SUMS, ordered_question
from tests.transforms.hierarchy_releases import sparse_question

_RANDOM = np.random.default_rng(8)
_PEOPLE = _RANDOM.zipf(1.3, every_kind.ROWS.num_rows) % 50
# A few people with many rows, many with few, and rows of nobody.
ROWS = every_kind.ROWS.append_column(
    "person", pa.array(_PEOPLE, mask=_RANDOM.random(len(_PEOPLE)) < 0.1)
)


def person(**bounds: Any) -> PrivacyUnit:
    """A person, of whom a few rows are counted."""
    given = {"rows": 6, "keys": 2, "rows_per_key": 4} | bounds
    return PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), **given)


DROP, OWN = person(), person(nulls=NullUnits.OWN)
ONE = person(rows=1, keys=None, rows_per_key=None)


def _mixed(unit: PrivacyUnit) -> ReleasePlan:
    return make_release_plan(
        ordered_question(keyed=True, unit=unit, chunk_leaves=16),
        hierarchy_question("digits", unit=unit, chunk_leaves=4),
        box_question(holding=Holding.SPARSE, unit=unit),
    )


def _sketch(unit: PrivacyUnit) -> SketchQuestion:
    (first, _) = every_kind.PLANS["sketch"]().questions
    return replace(first, release_unit=unit)  # type: ignore[arg-type, return-value]


def _alone(made: Callable[[PrivacyUnit], Question], unit: PrivacyUnit) -> Callable[..., Any]:
    return cache(lambda: make_release_plan(made(unit)))  # type: ignore[arg-type]


# Each is made once.
PLANS: dict[str, Callable[[], ReleasePlan]] = {
    "ordered": _alone(lambda unit: ordered_question(unit=unit), DROP),
    "ordered by key": _alone(
        lambda unit: ordered_question(keyed=True, unit=unit, chunk_leaves=16), OWN
    ),
    "hierarchy": _alone(lambda unit: hierarchy_question("digits", unit=unit, chunk_leaves=4), DROP),
    "sums": _alone(
        lambda unit: hierarchy_question(
            "columns", measure=SUMS, keys=RACES, unit=unit, chunk_leaves=4
        ),
        OWN,
    ),
    "thresholds": cache(
        lambda: make_stated_plan(threshold_question("paths", name="thresholds", unit=ONE))
    ),
    "labels": cache(lambda: make_stated_plan(sparse_question("labels", unit=DROP))),
    "paths": cache(lambda: make_stated_plan(sparse_question("paths", unit=OWN))),
    "codes": cache(lambda: make_stated_plan(sparse_question("codes", unit=OWN))),
    "box, dense": _alone(lambda unit: box_question(holding=Holding.DENSE, unit=unit), DROP),
    "box, sparse": _alone(lambda unit: box_question(holding=Holding.SPARSE, unit=unit), OWN),
    "box, sketch": _alone(
        lambda unit: sketched("sketches", SketchKind.COUNT_SKETCH, rows=3, unit=unit), DROP
    ),
    "table": _alone(lambda unit: table_question(unit=unit), DROP),
    "table, own": _alone(lambda unit: table_question(unit=unit), OWN),
    "sketch": _alone(_sketch, OWN),
    "mixed": cache(lambda: _mixed(OWN)),
}
