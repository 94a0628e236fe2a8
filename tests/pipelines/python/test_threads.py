"""A million rows in eight files on several threads: the bytes that one thread gives.

Every kind of tree reads Parquet, for rows and for units; a few trees read every format, and frames.
`make test-locked` runs this with the packages of the images, and CI with the newest ones too.
`tests.transforms.test_threads` finds encryptors that threads share, without a race.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml

from tests.golden.configurations import (
    ADDRESSES,
    BY,
    CITIES,
    FINE,
    NUMBERS,
    yaml_trees,
)
from tests.pipelines.python.conftest import fixed, read_files

pytestmark = pytest.mark.filterwarnings("ignore:the total of tree")

FILES, FILE_ROWS = 8, 125_000
THREADS = 3
# Each kind of tree; what is read and counted as one of these is left out.
KINDS = (
    *("value-bounds", "quantiles-by", "exponential", "chunks", "adaptive", "dates", "counts"),
    *("weekdays", "hierarchy", "hierarchy-chunks", "hierarchy-paths", "sums", "thresholds"),
    *("sparse-codes", "sparse-paths", "box-dense", "box-count-min", "distinct", "mean", "table"),
    "sketch",
)
FEW = (
    f"domain: {NUMBERS}, {BY}",
    f"domain: {CITIES}",
    f"domain: {ADDRESSES}",
    f"domain: {{kind: distinct, column: fine, type: integer}}, {BY}",
    "domain: {kind: distinct, column: city}",
    f"domain: {FINE}, mechanism: exponential, quantiles: [0.5]",
    "domain: {column: delay, lower: -20, upper: 200}, objective: mean",
)


@pytest.fixture
def many(work: Path) -> pa.Table:
    """A million rows, in files of every format."""
    one = pq.read_table("rows.parquet")
    table = pa.concat_tables([one] * -(-FILES * FILE_ROWS // len(one)))[: FILES * FILE_ROWS]
    for name in ("parquet", "csv", "jsonl", "arrow"):
        Path(name).mkdir()
    for number in range(FILES):
        part = table.slice(number * FILE_ROWS, FILE_ROWS)
        pq.write_table(part, f"parquet/{number}.parquet")
        pyarrow.csv.write_csv(part, f"csv/{number}.csv")
        pyarrow.feather.write_feather(part, f"arrow/{number}.arrow")
        pl.from_arrow(part).write_ndjson(f"jsonl/{number}.jsonl")  # type: ignore[union-attr]
    return table


def configuration(trees: tuple[str, ...], unit: str = "") -> dict[str, Any]:
    listed = "\n".join(f"  - {{name: t{number}, {tree}}}" for number, tree in enumerate(trees))
    privacy = f"privacy: {{epsilon: 9.0, delta: 1.0e-6, neighbors: add_remove{unit}}}"
    values: dict[str, Any] = yaml.safe_load(f"release: threads\n{privacy}\ntrees:\n{listed}\n")
    return values


def check_threads(rows: Any, config: dict[str, Any]) -> None:
    """Release on one thread, and on several; compare all files."""
    made = []
    for threads in (1, THREADS):
        output, options = f"out-{threads}", [f"--direct_num_workers={threads}"]
        fixed(rows, config, output=output, options=options)
        made.append(read_files(Path(output)))
    assert len(made[0]) > 4 and made[0] == made[1]


@pytest.mark.parametrize("unit", ["", ", unit: path, max_rows: 40, max_keys: 2"])
def test_every_kind_of_tree(many: pa.Table, unit: str) -> None:
    trees = tuple(tree for name in KINDS for tree in yaml_trees(name))
    if unit:  # chosen bounds need a unit of one row
        trees = tuple(each for each in trees if "auto" not in each)
    check_threads("parquet/*.parquet", configuration(trees, unit))


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "table", "pandas", "polars"])
def test_every_reader(many: pa.Table, form: str) -> None:
    frames = {
        "table": lambda: many,
        "pandas": many.to_pandas,
        "polars": lambda: pl.from_arrow(many),
    }
    rows = frames[form]() if form in frames else f"{form}/*.{form}"
    check_threads(rows, configuration(FEW))
