"""Large sparse trees: heavy nodes found against the truth, seconds and peak memory.

Run as ``python -m benchmarks.sparse FOLDER [--tree addresses|bits|flights]``. A folder without
files gets a log of ``--rows`` addresses (trees of bytes or of single bits over 2^32 leaves);
flights come from ``examples/flights.py`` (origin, destination, carrier, tail number). In one
process, on dpcore alone: read, count, add noise, settle. The truth is compared afterwards, out of
the timing.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource, combine_digests
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.messages import Increments, Place
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain
from dptrees.dpcore.sparse.plan import SparsePlan, plan_sparse, publish_shard
from dptrees.dpcore.sparse.pruning import PrunedLevel, Pruning, solve_levels
from dptrees.dpcore.sparse.question import SparseCounter, merge_shard

TREES: dict[str, SparseDomain] = {
    "addresses": CodeDomain(column="address", widths=(8, 8, 8, 8)),
    "bits": CodeDomain(column="address", widths=(1,) * 32),
    "flights": LabelDomain(label_columns=("origin", "dest", "carrier", "tailnum")),
}
KEY, SHARDS = ReleaseKey(bytes(32)), 16
Shards = dict[Place, NodeCounts]


def peak() -> float:
    """The process's peak memory in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def batches(folder: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The columns of all files."""
    for path in sorted(folder.glob("*.parquet")):
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(2**18, columns=list(columns))


def write_addresses(folder: Path, rows: int) -> None:
    """Write a log of addresses, heavy-tailed at every byte.

    Given the bytes before it, a byte's r-th most frequent value has a probability in proportion to
    r^-1.2, and which value that is depends on the bytes before it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(8):
        generator = np.random.default_rng([1981, number])
        table = pa.table({"address": addresses(generator, rows // 8)})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", compression="zstd")


def addresses(generator: np.random.Generator, size: int) -> np.ndarray:
    """Return uint32 addresses, (size,)."""
    weights = np.arange(1, 257, dtype=np.float64) ** -1.2
    edges = np.cumsum(weights / weights.sum())[:-1]
    prefix = np.zeros(size, np.uint64)
    for _ in range(4):
        rank = np.searchsorted(edges, generator.random(size)).astype(np.uint64)
        # A permutation of the byte values that differs from prefix to prefix.
        start = ((prefix + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        byte = (rank * np.uint64(167) + start) & np.uint64(255)
        prefix = (prefix << np.uint64(8)) | byte
    return prefix.astype(np.uint32)


def count(folder: Path, domain: SparseDomain) -> tuple[int, Shards]:
    """The rows, and the exact counts of each part of each level."""
    counter, rows = SparseCounter(domain, SHARDS), 0
    partials: dict[Place, list[bytes]] = {}

    def take() -> None:
        for partial in counter.take():
            partials.setdefault(partial.place, []).append(partial.data)

    for batch in batches(folder, domain.columns):
        leaves = domain.leaf_counts({name: batch.column(name) for name in domain.columns})
        rows += counter.add(Increments(leaves.keys, leaves.counts), len(batch))
        if counter.is_due:
            take()
    take()
    return rows, {place: merge_shard(domain, parts) for place, parts in partials.items()}


def publish(plan: SparsePlan, domain: SparseDomain, shards: Shards) -> list[NodeCounts]:
    """The published nodes of each level."""
    total = sum(own.digest(KEY, "r", "t", place) for place, own in shards.items())
    noise = NoiseSource(key=KEY, release="r", spec_digest=b"", global_digest=combine_digests(total))
    levels: list[list[NodeCounts]] = [[] for _ in range(plan.height + 1)]
    for (level, shard), own in shards.items():
        levels[level].append(publish_shard(plan, domain, "t", level, shard, own, noise))
    return [NodeCounts.merged([NodeCounts.empty(domain.key_type), *parts]) for parts in levels]


def print_levels(
    plan: SparsePlan, domain: SparseDomain, shards: Shards, levels: list[PrunedLevel]
) -> None:
    """How many of the nodes of a size were found, and how far off their counts are.

    Of n95 rows or more a node is published with a probability of at least 95 %. Shown are the
    published nodes and their ancestors.
    """
    print(
        f"{'level':<8} {'nodes':>9} {'shown':>9} {'R':>5} {'n95':>5} {'over n95':>9} "
        f"{'found':>7} {'R/2..n95':>9} {'found':>7} {'covered':>8} {'rms error':>9} {'sd':>6}"
    )
    for number, level in enumerate(levels):
        truth = NodeCounts.merged([own for place, own in shards.items() if place[0] == number])
        places = pc.index_in(level.keys, value_set=truth.keys)
        true = truth.counts[np.asarray(places)]
        heavy, radius = plan.heavy_count(number), plan.radius(number)
        cells = []
        for low, high in ((heavy, 2**62), (radius // 2, heavy)):
            there = int(((truth.counts >= low) & (truth.counts < high)).sum())
            seen = int(((true >= low) & (true < high) & ~np.isnan(level.estimate)).sum())
            cells.append(f"{there:>9,} {seen / there if there else 1:>7.1%}")
        covered = ((level.ci_low <= true) & (true <= level.ci_high)).mean()
        error = np.sqrt(np.nanmean((level.estimate - true) ** 2))
        print(
            f"{plan.levels[number].name:<8} {len(truth):>9,} {len(true):>9,} {radius:>5} "
            f"{heavy:>5} {' '.join(cells)} {covered:>8.1%} {error:>9.2f} "
            f"{plan.standard_error(number):>6.2f}"
        )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of a log that is written")
    parser.add_argument("--tree", choices=TREES, default="addresses")
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--delta", type=Fraction, default=Fraction(1, 10**8))
    arguments = parser.parse_args()
    domain = TREES[arguments.tree]
    if not [*arguments.folder.glob("*.parquet")]:
        write_addresses(arguments.folder, arguments.rows)
    plan = plan_sparse(domain.names, arguments.epsilon, arguments.delta, ADD_REMOVE_ROW)
    before, began = peak(), time.perf_counter()
    rows, shards = count(arguments.folder, domain)
    counted = time.perf_counter()
    published = publish(plan, domain, shards)
    noisy = time.perf_counter()
    levels = solve_levels(plan, domain, published)
    settled = time.perf_counter()
    print(
        f"{arguments.tree}: {rows:,} rows, {sum(map(len, shards.values())):,} nodes with rows, "
        f"{sum(len(each.keys) for each in levels):,} published; "
        f"epsilon {arguments.epsilon}, delta {arguments.delta}\n"
        f"seconds: count {counted - began:.1f}, noise {noisy - counted:.1f}, "
        f"settle {settled - noisy:.1f}; peak memory {peak():,.0f} MB ({before:,.0f} before)"
    )
    print_levels(plan, domain, shards, levels)
    pruning = Pruning(rows=100)
    pruned = sum(
        len(level.keys) for level in solve_levels(plan, domain, published, pruning=pruning)
    )
    print(f"pruned by intervals that begin below {pruning.rows} rows: {pruned:,} nodes are left")
    for number in range(1, min(5, len(levels))):
        level = levels[number]
        top = np.argsort(-level.estimate)[:3]  # implied nodes, whose estimate is NaN, come last
        paths = domain.paths(number, level.keys.take(pa.array(top))).to_pylist()
        nodes = zip(paths, level.count[top], strict=True)
        print(plan.levels[number].name, "; ".join(f"{path} {count:,}" for path, count in nodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
