"""Faults that several audits must find, and how an audit finds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.audit.exact import Finding
from dptrees.dpcore.bounding import row_choice
from dptrees.dpcore.bounding.row_choice import RowBounds
from dptrees.dpcore.bounding.unit_ids import UnitIds, Units
from dptrees.dpcore.boxes import held_counts, partition
from dptrees.dpcore.irregular import forest as irregular_forest
from dptrees.dpcore.noise import source as noise
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.papers import forest as published_forest
from dptrees.dpcore.uniform import plan

Patch = pytest.MonkeyPatch


def is_found(run: Callable[[], Finding]) -> bool:
    """Whether an audit notices: by a loss, a leak, or noise that is not drawn as it should be.

    The first pair that shows it is enough.
    """
    own = Finding.add

    def add(found: Finding, ratio: Fraction | float, leaked: bool) -> None:
        own(found, ratio, leaked)
        assert found.keeps_the_claim

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "add", add)
        try:
            run()
        except AssertionError:
            return True
    return False


def half(law: Any) -> Any:
    """The law of half the noise."""
    if isinstance(law, DiscreteGaussian):
        return replace(law, sigma_squared=law.sigma_squared / 4)
    return replace(law, scale=law.scale / 2)


def half_the_noise(patch: Patch) -> None:
    for module in (plan, published_forest, irregular_forest, partition, held_counts):
        patch.setattr(
            module,
            "add_noise",
            lambda law, *rest, **more: noise.add_noise(half(law), *rest, **more),
        )


def noise_that_does_not_hang_on_the_data(patch: Patch) -> None:
    patch.setattr("dptrees.dpcore.questions.messages.counts_digest", lambda *place: 0)
    patch.setattr(NoiseSource, "for_counts", lambda self, counts: self)


def one_keystream_for_all_levels(patch: Patch) -> None:
    """Draw the same noise for all levels of a tree, and for all columns of a table."""
    own = NoiseSource.stream
    patch.setattr(
        NoiseSource, "stream", lambda self, tree, key, chunk, level: own(self, tree, key, chunk, 0)
    )


def wrong_bounds(patch: Patch, **changed: Callable[[RowBounds], int | None]) -> None:
    """Bounding that reads other bounds than the noise was made for."""

    def made(**given: int | None) -> RowBounds:
        own = RowBounds(**given)  # type: ignore[arg-type]
        return RowBounds(**given | {name: change(own) for name, change in changed.items()})  # type: ignore[arg-type]

    patch.setattr(row_choice, "RowBounds", made)


def one_row_too_many(patch: Patch) -> None:
    wrong_bounds(patch, rows=lambda own: own.rows + 1)


def bounded_in_each_batch(patch: Patch) -> None:
    """And never again where batches meet."""
    own = UnitIds.row_ids

    def of(self: UnitIds, columns: Any) -> Units:
        ids, missing = own(self, columns)
        ids = ids.copy()
        ids[:, 1] ^= np.uint64(len(ids))
        return ids, missing

    patch.setattr(UnitIds, "row_ids", of)
