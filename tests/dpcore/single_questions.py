"""Releases of one question alone, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dptrees.dpcore.noise.laws import ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows

KEY = ReleaseKey(bytes(range(32)))


def alone(question: Any) -> ReleasePlan:
    """Return the plan of a release that has one question."""
    epsilon, delta = question.spending.own
    unit = getattr(question, "release_unit", question.unit)
    own: dict[str, Any] = {"budget": question.budget}
    if delta:
        own = {"budget": Budget(measure=Measure.EPSILON, amount=epsilon)}
        own["stated"] = (epsilon, delta)
    return ReleasePlan(name="r", unit=unit, questions=(question,), **own)


def released(question: Any, rows: Mapping[str, Any], size: int = 1000, nonce: bytes = b"") -> Any:
    """Return what is released of rows, which come in batches of a size."""
    batches = pa.table(dict(rows)).to_batches(max_chunksize=size)
    return release_rows(alone(question), batches, KEY, nonce=nonce).tree(question.name)


def silenced(question: Any) -> Any:
    """Return the question without noise; it states the errors of its plan."""
    silent = replace(question)
    silent.__dict__["law"] = ZeroNoise()
    return silent
