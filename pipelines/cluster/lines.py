"""What a release takes on many workers, in the lines of ``dptrees plan``."""

from __future__ import annotations

from collections.abc import Iterator

from dptrees.pipelines.answers.figures import significant
from dptrees.pipelines.cluster.needs import ClusterNeeds

_GIB = 2**30


def cluster_lines(needs: ClusterNeeds) -> Iterator[str]:
    """Yield the lines about a cluster."""
    workers = "1 worker" if needs.workers == 1 else f"{needs.workers:,} workers, each"
    keys = ", as if one key were selected" if needs.for_one_key else ""
    yield (
        f"on {workers} of one core, for {needs.rows:,.0f} rows{keys} (predicted, for cores like "
        "the measured ones of docs/scale.md):"
    )
    yield (
        f"  processors: {_duration(needs.cpu)} in all (rows {_duration(needs.rows_cpu)}, "
        f"leaves {_duration(needs.leaves_cpu)}, launcher {_duration(needs.launcher_cpu)}, "
        f"starts {_duration(needs.start_cpu)}); the job takes {_duration(needs.seconds)}"
    )
    yield f"  shuffled: at most {_size(needs.shuffled)}"
    yield (
        f"  memory: at most {needs.worker_memory / _GIB:.1f} GiB a worker, "
        f"{needs.launcher_memory / _GIB:.1f} GiB on the launcher"
    )
    yield f"  parts of the release: {needs.parts:,} files"
    if needs.keeps_shards:
        shards = f"{needs.unit_shards} shards, which a series with max_periods keeps"
        yield f"  rows of units: in {shards}"
    elif needs.unit_shards:
        yield f"  rows of units: --unit_shards={needs.unit_shards}"


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 1.5 * size:
            return f"{significant(seconds / size, 2)} {unit}"
    return f"{significant(seconds, 2)} s"


def _size(size: float) -> str:
    for unit, whole in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= whole:
            return f"{significant(size / whole, 2)} {unit}"
    return f"{significant(size / 1e3, 2)} kB"
