"""Small releases of every kind: relations, measures, mechanisms, estimates, forms of domain, keys,
and both sides of the limit of a chunk. Rows, key, nonce and names are fixed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.noise.randomness import ReleaseKey

ROWS = 20_000
NONCE = bytes(range(16)).hex()

WHOLE = "consistency: top_down"
NUMBERS = "{column: delay, lower: -20, upper: 200, cells: 220}"
AUTO_NUMBERS = "{column: delay, lower: auto, upper: {at_most: 5000}, cells: 64}"
AUTO_DAYS = "{column: day, type: date, lower: auto, upper: {at_most: 2030-01-01}}"
MINUTES = (
    "{column: minutes, type: integer, lower: 0, upper: 300, out_of_range: clamp, missing: first}"
)
FINE = "{column: fine, type: integer, lower: 0, upper: 300000}"
CITIES = "{kind: hierarchy, columns: [state, city], table: cities.parquet, unknown: other}"
CODES = (
    "{kind: hierarchy, column: code, digits: [1, 1, 2], levels: [a, b, c], table: codes.parquet}"
)
BIG_CODES = (
    "{kind: hierarchy, column: bigcode, digits: [2, 2, 2], levels: [a, b, c], "
    "table: bigcodes.parquet}"
)
YEAR = "lower: 2013-01-01, upper: 2014-01-01"
DAYS = f"{{kind: hierarchy, column: day, calendar: [month, day], {YEAR}}}"
PATHS = "{kind: hierarchy, column: path, separator: /, table: paths.parquet}"
ADDRESSES = "{kind: sparse, column: address, bits: [8, 8, 8, 8]}"
BY = "group_by: {column: carrier, keys: [UA, AA, DL], unknown: other}"
BOX = (
    "{kind: hypercube, columns: [{column: delay, lower: -20, upper: 200, cells: 256}, "
    "{column: minutes, type: integer, lower: 0, upper: 300}, "
    "{column: carrier, categories: [UA, AA, DL, B6]}]}"
)
WIDE = (
    "{kind: table, cells: 16, columns: [{column: delay, lower: -20, upper: 200, cells: 16}, "
    "{column: minutes, type: integer, lower: 0, upper: 300}, "
    "{column: carrier, categories: [UA, AA, DL, B6]}, {column: state, categories: [NY, NJ, CT]}]}"
)
# All that a planner would choose, so that other choices of its change nothing here.
CHOSEN = "mechanism: privhp, k: 64, split_errors: 3, shares: equal, consistency: least_squares"
PLANNED = f"depth: 12, bits_apart: 4, {CHOSEN}"
DEEP = f"depth: 18, bits_apart: 3, {CHOSEN}"
SKETCHED = "counts: sketch, width: 256, rows: 20000"
RELATIVE = "objective: relative, metric: alpha_mrmse"
PURE, RHO, APPROXIMATE = "epsilon: 1.0", "rho: 0.1", "epsilon: 1.0, delta: 1.0e-6"

# By name: the budget, and the trees without their names; under add_remove.
ADD_REMOVE: dict[str, tuple[str, ...]] = {
    "cdf": (PURE, f"domain: {NUMBERS}, {WHOLE}"),
    "cdf-rho": (RHO, f"domain: {NUMBERS}, {WHOLE}"),
    "value-bounds": (PURE, f"domain: {AUTO_NUMBERS}, {WHOLE}"),
    "date-bounds": (PURE, f"domain: {AUTO_DAYS}, {WHOLE}"),
    "cdf-approximate": (APPROXIMATE, f"domain: {NUMBERS}"),
    "quantiles-by": (
        PURE,
        f"domain: {NUMBERS}, {BY}, objective: quantiles, quantiles: [0.1, 0.5, 0.9], {WHOLE}",
    ),
    "exponential": (
        PURE,
        f"domain: {NUMBERS}, {BY}, mechanism: exponential, quantiles: [0.5, 0.1, 0.9]",
        f"domain: {MINUTES}, mechanism: exponential, quantiles: [0.25]",
    ),
    "exponential-intervals": (
        PURE,
        f"domain: {NUMBERS}, {BY}, mechanism: exponential, quantiles: [0.5, 0.9], "
        "intervals: {fraction: 0.3}",
    ),
    "exponential-rounds": (
        RHO,
        f"domain: {FINE}, mechanism: exponential, quantiles: [0.5, 0.25], "
        "intervals: {fraction: 0.25}",
        f"domain: {FINE}, {BY}, mechanism: exponential, quantiles: [0.5]",
    ),
    "exponential-rho": (
        RHO,
        f"domain: {MINUTES}, mechanism: exponential, quantiles: [0.25, 0.5]",
    ),
    "chunks": (PURE, f"domain: {FINE}, quantiles: [0.5], {WHOLE}"),
    "chunks-by-rho": (
        RHO,
        "domain: {column: fine, type: integer, lower: 0, upper: 140000}, "
        f"group_by: {{column: carrier, keys: [UA, AA]}}, {WHOLE}",
    ),
    "binary-none": (
        PURE,
        f"domain: {NUMBERS}, mechanism: binary, estimation: none, quantiles: [0.5]",
    ),
    "binary-below": (
        PURE,
        f"domain: {NUMBERS}, mechanism: binary, estimation: below, quantiles: [0.5]",
    ),
    "binary-full": (
        PURE,
        f"domain: {NUMBERS}, mechanism: binary, estimation: full, quantiles: [0.5]",
    ),
    "above": (RHO, f"domain: {NUMBERS}, mechanism: binary, estimation: above"),
    "independent": (PURE, f"domain: {NUMBERS}, mechanism: independent"),
    "histogram-l1": (PURE, f"domain: {NUMBERS}, mechanism: histogram, consistency: l1"),
    "histogram-linf": (PURE, f"domain: {NUMBERS}, mechanism: histogram, consistency: linf"),
    "factorised": (
        RHO,
        f"domain: {NUMBERS}, mechanism: factorised, {BY}, quantiles: [0.5]",
        "domain: {column: fine, type: integer, lower: 0, upper: 3000}, mechanism: factorised",
    ),
    "ranges": (PURE, f"domain: {NUMBERS}, objective: ranges, widths: [7, 30]"),
    "for-counts": (
        PURE,
        f"domain: {NUMBERS}, optimize_for: counts, guess: {{rows: 300}}, consistency: shrunk",
    ),
    "planned-for-counts": (
        PURE,
        f"domain: {NUMBERS}, optimize_for: counts, {BY}, quantiles: [0.5]",
        "domain: {column: fine, type: integer, lower: 0, upper: 3000}, optimize_for: counts",
    ),
    "top-down": (PURE, f"domain: {CODES}, consistency: top_down"),
    "nodes": (
        RHO,
        f"domain: {NUMBERS}, objective: nodes, fanouts: [11, 20], level_weights: [0, 2, 1]",
    ),
    "adaptive": (
        PURE,
        f"domain: {NUMBERS}, mechanism: adaptive, fanouts: [4, 5, 11], quantiles: [0.1, 0.5]",
    ),
    "adaptive-shrunk": (
        PURE,
        f"domain: {NUMBERS}, mechanism: adaptive, optimize_for: counts, consistency: shrunk, "
        "fanouts: [4, 5, 11]",
    ),
    "adaptive-by-rho": (
        RHO,
        f"domain: {NUMBERS}, {BY}, mechanism: adaptive, optimize_for: counts, fanouts: [10, 22]",
    ),
    "dates": (
        PURE,
        f"domain: {{column: day, {YEAR}, out_of_range: clamp}}, quantiles: [0.5], {WHOLE}",
    ),
    "categories": (PURE, "domain: {column: carrier, categories: [UA, AA, DL], ordered: true}"),
    "counts": (PURE, "domain: {column: carrier, categories: [UA, AA, DL]}"),
    "weekdays": (
        PURE,
        f"domain: {{kind: hierarchy, column: day, calendar: [month, weekday], {YEAR}}}",
    ),
    "hierarchy": (PURE, f"domain: {CITIES}"),
    "hierarchy-by-rho": (RHO, f"domain: {CODES}, {BY}"),
    "hierarchy-chunks": (PURE, f"domain: {BIG_CODES}"),
    "hierarchy-paths": (PURE, f"domain: {PATHS}"),
    "calendar": (APPROXIMATE, f"domain: {DAYS}, level_weights: {{month: 1, day: 2}}"),
    "sums": (
        PURE,
        f"domain: {CODES}, measure: {{column: value, lower: -20, upper: 100, missing: zero}}",
    ),
    "as-measured": (PURE, f"domain: {CODES}, mechanism: tree, estimation: none"),
    "relative": (APPROXIMATE, f"domain: {CODES}, {RELATIVE}, alpha: 0.5"),
    "thresholds": (
        APPROXIMATE,
        f"domain: {CITIES}, {RELATIVE}, alpha: 0.9, mechanism: thresholds, {BY}",
    ),
    "adaptive-hierarchy": (
        PURE,
        f"domain: {CODES}, mechanism: adaptive, optimize_for: counts, guess: {{rows: 20000}}",
        f"domain: {CITIES}, mechanism: adaptive, optimize_for: estimates, {BY}",
    ),
    "sparse-codes": (APPROXIMATE, f"domain: {ADDRESSES}"),
    "sparse-paths": (
        APPROXIMATE,
        "domain: {kind: sparse, column: path, depth: 3, separator: /}, level_weights: [1, 2, 1]",
    ),
    "box-dense": (PURE, f"domain: {BOX}, {PLANNED}, counts: dense"),
    "box-sparse": (RHO, f"domain: {BOX}, {DEEP}, counts: sparse"),
    "box-count-min": (
        PURE,
        f"domain: {BOX}, {PLANNED}, {SKETCHED}, sketch: count_min, hashes: 3",
    ),
    "box-count-sketch": (
        APPROXIMATE,
        f"domain: {BOX}, {PLANNED}, {SKETCHED}, sketch: count_sketch, hashes: 1, noise: gaussian",
    ),
    "box-paper": (
        PURE,
        f"domain: {BOX}, mechanism: privhp_paper, depth: 14, k: 16, counts: sparse",
    ),
    "box-adaptive": (
        PURE,
        f"domain: {BOX}, mechanism: adaptive, optimize_for: estimates, depth: 12, bits_apart: 4, "
        "k: 64, split_errors: 3, shares: equal, consistency: least_squares, counts: dense",
    ),
    "distinct": (
        PURE,
        f"domain: {{kind: distinct, column: city}}, {BY}",
        "domain: {kind: distinct, column: fine}",
    ),
    "mean": (
        PURE,
        f"domain: {{column: delay, lower: -20, upper: 200}}, objective: mean, {BY}",
        "domain: {column: fine, type: integer, lower: 0, upper: 500}, objective: mean",
    ),
    "sketch": (
        PURE,
        "domain: {kind: sketch, column: city}, rows: 20000, values: 100, memory: 64 KiB",
        "domain: {kind: sketch, column: fine, bits: [8, 6, 5], notation: hex}, "
        "type: count_sketch, hashes: 3, width: 1024",
    ),
    "table": (PURE, f"domain: {WIDE}"),
    "table-by-rho": (RHO, f"domain: {WIDE}"),
    "table-target": (PURE, f"domain: {WIDE}, target: carrier, pairs: [[state, delay]]"),
    "mixed": (
        APPROXIMATE,
        f"domain: {NUMBERS}, {BY}, quantiles: [0.5], weight: 2",
        f"domain: {CITIES}",
        f"domain: {CITIES}, {RELATIVE}, alpha: 0.9, mechanism: thresholds",
        f"domain: {ADDRESSES}",
        f"domain: {DAYS}, noise: laplace",
    ),
}
SUBSTITUTE: dict[str, tuple[str, ...]] = {
    "cdf-substitute": (PURE, f"domain: {MINUTES}, {WHOLE}"),
    "factorised-substitute": (RHO, f"domain: {MINUTES}, mechanism: factorised"),
    "refined": (PURE, f"domain: {MINUTES}, mechanism: tree, estimation: refined"),
    "invariants": (PURE, f"domain: {CITIES}, invariants: state"),
    "box-substitute": (
        PURE,
        f"domain: {BOX}, mechanism: pmm, depth: 8, counts: dense",
        f"domain: {BOX}, {PLANNED}, counts: sparse",
    ),
    "sparse-labels": (
        APPROXIMATE,
        "domain: {kind: sparse, columns: [state, city, carrier]}, prune_below: 60",
    ),
}
NAMES = (*ADD_REMOVE, *SUBSTITUTE)


def yaml_trees(name: str) -> tuple[str, ...]:
    """The trees of a configuration, as YAML without their names (t0, t1, ...)."""
    return (ADD_REMOVE | SUBSTITUTE)[name][1:]


def write_configuration(folder: Path, name: str) -> Path:
    """Write a configuration whose paths start at its folder; return its path."""
    budget = (ADD_REMOVE | SUBSTITUTE)[name][0]
    neighbors = "add_remove" if name in ADD_REMOVE else "substitute"
    trees = (f"  - {{name: t{index}, {tree}}}" for index, tree in enumerate(yaml_trees(name)))
    path = folder / f"{name}.yaml"
    path.write_text(
        "\n".join(
            [
                f"release: {name}",
                "input: {format: parquet, path: rows.parquet}",
                f"output: out/{name}",
                "key_file: release.key",
                f"privacy: {{{budget}, neighbors: {neighbors}}}",
                "trees:",
                *trees,
                "",
            ]
        )
    )
    return path


def write_data(folder: Path) -> None:
    """Write the rows, the public lists of leaves and the key."""
    random = np.random.default_rng(20261121)
    carriers, states = np.array(["UA", "AA", "DL", "B6"]), np.array(["NY", "NJ", "CT"])
    letters = np.array(list("abcde"))
    state = states[random.integers(0, 3, ROWS)]
    columns = {
        "delay": pa.array(random.gamma(2.0, 20.0, ROWS) - 20, mask=random.random(ROWS) < 0.02),
        "minutes": pa.array(random.integers(0, 300, ROWS)),
        "fine": pa.array(random.integers(0, 300_000, ROWS)),
        "carrier": pa.array(carriers[random.integers(0, 4, ROWS)]),
        "state": pa.array(state),
        "city": pa.array(np.char.add(state, letters[random.integers(0, 5, ROWS)])),
        "code": pa.array([f"{value:04d}" for value in random.zipf(1.3, ROWS) % 1500]),
        "bigcode": pa.array([f"{value:06d}" for value in random.zipf(1.2, ROWS) % 200_000]),
        "path": pa.array(
            [
                f"{one}/{other}"
                for one, other in zip(
                    random.integers(0, 6, ROWS), random.zipf(1.4, ROWS) % 40, strict=True
                )
            ]
        ),
        "day": pa.array(
            (np.datetime64("2013-01-01") + random.integers(0, 365, ROWS)).astype("datetime64[D]")
        ),
        "address": pa.array((10 << 24 | (random.zipf(1.3, ROWS) % 5000)).astype(np.uint64)),
        "value": pa.array(random.integers(-50, 120, ROWS)),
    }
    tables = {
        "rows": columns,
        "codes": {"code": [f"{value:04d}" for value in range(1500)]},
        "bigcodes": {"bigcode": [f"{value:06d}" for value in range(200_000)]},
        "cities": {
            "state": np.repeat(states, 5),
            "city": np.char.add(np.repeat(states, 5), np.tile(letters, 3)),
        },
        "paths": {"path": [f"{one}/{other}" for one in range(6) for other in range(40)]},
    }
    for name, values in tables.items():
        pq.write_table(pa.table(values), folder / f"{name}.parquet", row_group_size=3000)
    key = folder / "release.key"
    key.write_text(ReleaseKey(bytes(range(7, 39))).to_text() + "\n")
    key.chmod(0o600)
