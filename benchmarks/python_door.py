"""A frame of a million rows to a private CDF: dptrees, OpenDP's context API and PipelineDP.

Run as ``python benchmarks/python_door.py [--opendp PYTHON] [--pipeline-dp PYTHON] [--rows N]``. All
release the number of rows below every one of 100 ages under epsilon = 1, a row being added or
removed. OpenDP and PipelineDP, which have no CDF, count every age and add up; both get the list of
ages, so that nothing is spent on which ones there are. Seconds are beside imports and making the
rows, of the first release in a process and of the best of three; lines are the lines of each
function; the error is the root mean square one over all points and 40 releases of a thousand rows.
Each is measured by the Python that has it:

    python -m venv /tmp/odp && /tmp/odp/bin/pip install 'opendp[polars]' pandas pyarrow
    python -m venv /tmp/pdp && /tmp/pdp/bin/pip install pipeline-dp
    python benchmarks/python_door.py --opendp /tmp/odp/bin/python --pipeline-dp /tmp/pdp/bin/python
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROWS = 1_000_000
# What errors are measured of: they do not depend on how many rows there are.
FEW, DRAWS = 1000, 40

DPTREES = """
import dptrees
import pandas
import dptrees.pipelines.python.making
def cdf(ages):
    domain = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
    config = {
        "privacy": {"epsilon": 1.0, "neighbors": "add_remove"},
        "trees": [{"name": "age", "domain": domain}],
    }
    release = dptrees.release(ages, config)
    return release["age"].cdf()["estimate"]
def frame(ages):
    return pandas.DataFrame({"age": ages})
"""

OPENDP = """
import warnings
import opendp.prelude as dp
import pandas
import polars
warnings.simplefilter("ignore")
dp.enable_features("contrib")
def cdf(ages):
    context = dp.Context.compositor(
        data=polars.from_pandas(ages).lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
    )
    keys = polars.LazyFrame({"age": range(100)}, schema={"age": polars.Int64})
    counts = context.query().group_by("age").agg(dp.len(signed=True)).with_keys(keys)
    return counts.release().collect().sort("age")["len"].cum_sum().to_list()
def frame(ages):
    return pandas.DataFrame({"age": ages})
"""

PIPELINE_DP = """
import pipeline_dp
def cdf(ages):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-10)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 1,
    )
    counts = engine.aggregate(enumerate(ages), params, extractors, public_partitions=[*range(100)])
    accountant.compute_budgets()
    found = {age: answer.count for age, answer in counts}
    return numpy.cumsum([found[age] for age in range(100)]).tolist()
def frame(ages):
    return ages.tolist()
"""

MEASURE = """
import time
import numpy
def made(rows):
    return numpy.random.default_rng(1).gamma(6.0, 7.0, rows).clip(0, 99).astype(int)
rows, seconds, processor = frame(made({rows})), [], []
for _ in range({times}):
    begun, used = time.perf_counter(), time.process_time()
    cdf(rows)
    seconds.append(time.perf_counter() - begun)
    processor.append(time.process_time() - used)
few = made({few})
truth = numpy.bincount(few, minlength=100).cumsum()
points = numpy.array([cdf(frame(few)) for _ in range({draws})], float)
error = numpy.sqrt(numpy.mean((points - truth) ** 2))
print(seconds[0], min(seconds[1:] or seconds), min(processor), error)
"""


def count_lines(code: str) -> int:
    """Number of lines that a user writes: the lines of the function."""
    body = code.split("def cdf(ages):\n")[1].split("def frame")[0]
    return len(body.strip().splitlines())


def measured(python: str, code: str, rows: int, times: int) -> list[float]:
    """The seconds of the first and of the best later release, the processor seconds of the best,
    and the error, of a process."""
    result = subprocess.run(
        [python, "-c", code + MEASURE.format(rows=rows, times=times, few=FEW, draws=DRAWS)],
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(result.stderr)
    return [*map(float, result.stdout.split()[-4:])]


def main() -> None:
    """Prints a line for each."""
    parser = argparse.ArgumentParser(description="A frame to a private CDF.")
    parser.add_argument("--opendp", metavar="PYTHON", help="the Python that has OpenDP")
    parser.add_argument("--pipeline-dp", metavar="PYTHON", help="the Python that has PipelineDP")
    parser.add_argument("--rows", type=int, default=ROWS)
    chosen = parser.parse_args()
    print(f"{chosen.rows:,} rows, 100 points, epsilon = 1")
    print(f"{'':16}{'first s':>9}{'later s':>9}{'cpu s':>9}{'lines':>7}{'rms error':>11}")
    for name, python, code, times in (
        ("dptrees", sys.executable, DPTREES, 3),
        ("OpenDP", chosen.opendp, OPENDP, 3),
        ("PipelineDP", chosen.pipeline_dp, PIPELINE_DP, 1),
    ):
        if python is not None:
            first, best, processor, error = measured(python, code, chosen.rows, times)
            seconds = f"{first:9.2f}{best:9.2f}{processor:9.2f}"
            print(f"{name:16}{seconds}{count_lines(code):7}{error:11.1f}", flush=True)


if __name__ == "__main__":
    main()
