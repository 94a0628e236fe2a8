"""This project's mechanisms, each by what a configuration says of its tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from benchmarks.accuracy.cases import QUANTILES, Answers, Case
from benchmarks.accuracy.method import Absent, Method, Origin
from dpcore.noise.randomness import ReleaseKey
from dpcore.release.in_memory import release_counts
from dpcore.release.plan import ReleasePlan
from dpcore.release.release import Release
from pipelines.configuration import checked_configuration
from pipelines.python.config import plain
from pipelines.sections.error import ConfigurationError

_TREE = "x"
_KEY = ReleaseKey(b"accuracy: a public constant key.")
Section = Callable[[Case], Mapping[str, Any]]


def plan_of(tree: Mapping[str, Any], privacy: Mapping[str, Any]) -> ReleasePlan:
    """The plan of a release of one tree.

    Raises:
        Absent: this version does not know what the tree asks for, or not under this budget.
    """
    values = {
        "release": "accuracy",
        "output": "rows",
        "key": "env:DPTREES_KEY",
        "input": {"format": "parquet", "path": "rows"},
        "privacy": {"neighbors": "add_remove", **privacy},
        "trees": [{"name": _TREE, **tree}],
    }
    try:
        return checked_configuration(plain(values), "configuration", {}).plan()
    except ConfigurationError as error:
        raise Absent(str(error)) from None


def nonce_of(case: Case, number: int) -> bytes:
    """Names a release, so that every one has noise of its own, and a later run the same."""
    return f"{case.data.name} {case.rows} {case.privacy} {case.asked} {number}".encode()


@lru_cache(maxsize=64)
def _planned(tree: str, measure: str, amount: str) -> ReleasePlan:
    return plan_of(json.loads(tree, parse_float=Decimal), {measure: Decimal(amount)})


def _answers(release: Release, cells: int) -> Mapping[str, Answers]:
    told: dict[Fraction, int] = {}
    if release.quantiles is not None:
        for row in release.quantiles.select(["q", "value"]).to_pylist():
            told[Fraction(row["q"]).limit_denominator(100)] = min(int(row["value"]), cells - 1)
    try:
        rows = release.part("cdf", _TREE, 0, 0)
    except KeyError:
        return {"": Answers(quantiles=told)}
    read = {name: rows[name].to_numpy().astype(float) for name in ("count", "estimate")}
    return {
        "count": Answers(prefixes=read["count"], quantiles=told),
        "estimate": Answers(prefixes=read["estimate"]),
    }


def _run(section: Section, case: Case, numbers: Sequence[int]) -> list[Mapping[str, Answers]]:
    cells = case.counts.size
    domain = {"column": "x", "type": "number", "lower": 0, "upper": cells, "cells": cells}
    quantiles = [float(each) for each in case.quantiles]
    tree = {"domain": domain, "quantiles": quantiles, **section(case)}
    plan = _planned(json.dumps(tree), case.privacy.measure, case.privacy.amount)
    return [
        _answers(
            release_counts(plan, {_TREE: case.counts}, _KEY, nonce=nonce_of(case, number)), cells
        )
        for number in numbers
    ]


def _guess(case: Case) -> Mapping[str, Any]:
    """A public guess of the rows, which is right."""
    return {"guess": {"rows": case.rows}}


def _method(name: str, section: Section, *, by_quantiles: bool = False) -> Method:
    asks = tuple(QUANTILES) if by_quantiles else (0,)
    return Method(name=name, origin=Origin.OURS, run=partial(_run, section), asks=asks)


OURS = (
    _method("planned", lambda case: {}),
    _method("planned, ranges", lambda case: {"objective": "ranges"}),
    _method("planned, quantiles", lambda case: {"objective": "quantiles"}, by_quantiles=True),
    _method("planned, for counts", lambda case: {"for": "counts", **_guess(case)}),
    _method("adaptive", lambda case: {"mechanism": "adaptive"}),
    _method("adaptive, guess", lambda case: {"mechanism": "adaptive", **_guess(case)}),
    _method("exponential", lambda case: {"mechanism": "exponential"}, by_quantiles=True),
    _method("factorised", lambda case: {"mechanism": "factorised"}),
)
