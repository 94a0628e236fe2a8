"""The bias of nonnegative counts on census blocks, and what sums over groups of blocks are off by.

    python -m benchmarks.integers [BLOCKS.csv] [--releases 20]

The blocks come from `benchmarks/census.py`: by default Rhode Island's, from the folder
shared/data beside the project. Epsilon is 1, one person more or fewer is a neighbor (add_remove),
the plan is the planner's for all levels alike, and every release has a key and noise of its own.

    estimates       unbiased; signed and fractional
    rounded         the estimates' nearest integers, of either sign, that add up at every node
    top_down        the counts of a release: the nearest nonnegative integers that add up
    smallest_first  the same with `consistency: smallest_first`: what there is too much of is taken
                    off the smallest nodes first

"bias" is the mean error of a block: of empty ones, of blocks of 1 to 10 people, and of more than
100. "RMSE" and "mean" are the root mean square and the mean absolute error of a block. The columns
after that are the root mean square error of the sum over so many blocks: chosen among the empty
ones, among blocks of 1 to 10, of more than 100, among all; and in a run of the table's order.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.census import BUDGETS, RHODE_ISLAND, TREE, Blocks, PlannedMethod, read_blocks
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.noise.source import NoiseSource, combine_digests, counts_digest
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW

SIZES = (10, 100, 1000)
GROUPS = 200


@dataclass(frozen=True, kw_only=True)
class Repaired(PlannedMethod):
    """A plan whose counts are repaired in one of three ways."""

    signed: bool = False
    smallest_first: bool = False

    @cached_property
    def forest(self) -> IrregularForest:
        """The forest of one tree."""
        return IrregularForest(self.plan, signed=self.signed, smallest_first=self.smallest_first)


def methods(blocks: Blocks) -> list[Repaired]:
    """The three kinds of integers, of one plan."""
    plan = with_best_shares(IrregularPlan(tree=blocks.tree, budget=BUDGETS[0], unit=ADD_REMOVE_ROW))
    top_down = Repaired(name="top_down", plan=plan)
    return [
        replace(top_down, name="rounded", signed=True),
        top_down,
        replace(top_down, name="smallest_first", smallest_first=True),
    ]


def block_errors(blocks: Blocks, releases: int) -> dict[str, Floats]:
    """(releases, blocks) the errors of the estimates and of each kind of integers, of the same
    noise."""
    found: dict[str, list[Floats]] = {"estimates": []}
    compared = methods(blocks)
    for number in range(releases):
        noise = _noise(blocks, number)
        for method in compared:
            release = method.release(blocks, noise)
            assert release.counts is not None
            errors = release.counts[-1] - blocks.counts
            found.setdefault(method.name, []).append(errors.astype(np.float64))
        found["estimates"].append(release.estimates[-1] - blocks.counts)
    return {name: np.array(errors) for name, errors in found.items()}


def _noise(blocks: Blocks, number: int) -> NoiseSource:
    # Anyone can compute these keys, which is of no use for a release: the figures repeat.
    key, name = ReleaseKey(public_stream("integers", number).bytes(32)), f"integers {number}"
    return NoiseSource(
        key=key,
        release=name,
        spec_digest=name.encode(),
        global_digest=combine_digests(counts_digest(key, name, TREE, 0, 0, blocks.counts)),
    )


def groups(counts: Integers) -> Iterator[tuple[str, int, list[Integers]]]:
    """Blocks whose sums are queried, by their kind and number."""
    kinds = {
        "empty": np.flatnonzero(counts == 0),
        "1-10": np.flatnonzero((counts > 0) & (counts <= 10)),
        ">100": np.flatnonzero(counts > 100),
        "any": np.arange(len(counts)),
    }
    for kind, members in kinds.items():
        for size in SIZES:
            rng = np.random.default_rng(size)
            yield kind, size, [rng.choice(members, size, replace=False) for _ in range(GROUPS)]
    for size in SIZES:
        starts = np.random.default_rng(size).integers(0, len(counts) - size, GROUPS)
        yield "run", size, [np.arange(start, start + size) for start in starts]


def table(blocks: Blocks, releases: int) -> Iterator[str]:
    """The lines of the report."""
    counts, every_group = blocks.counts, list(groups(blocks.counts))
    kinds = (counts == 0, (counts > 0) & (counts <= 10), counts > 100)
    yield (
        f"{len(counts):,} blocks, {kinds[0].sum():,} empty, {counts.sum():,} people, epsilon 1, "
        f"{releases} releases"
    )
    sums = " ".join(f"{f'{kind} {size}':>10}" for kind, size, _ in every_group)
    yield f"{'':<14} bias: empty  1-10  >100   RMSE  mean {sums}"
    for name, errors in block_errors(blocks, releases).items():
        bias = " ".join(f"{errors[:, kind].mean():5.2f}" for kind in kinds)
        square, absolute = np.sqrt((errors**2).mean()), np.abs(errors).mean()
        rows = [
            np.sqrt(np.mean([(errors[:, members].sum(axis=1) ** 2).mean() for members in each]))
            for _, _, each in every_group
        ]
        text = " ".join(f"{row:10.1f}" for row in rows)
        yield f"{name:<14}       {bias}  {square:5.2f} {absolute:5.2f} {text}"
        if name == "top_down":
            part = errors[:, kinds[0]].sum(axis=1).mean() / counts.sum()
            yield f"{'':<14} {100 * part:.2f} % of all people are counted in empty blocks"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", nargs="?", type=Path, default=RHODE_ISLAND)
    parser.add_argument("--releases", type=int, default=20)
    chosen = parser.parse_args()
    for line in table(read_blocks(chosen.blocks), chosen.releases):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
