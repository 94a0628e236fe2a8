"""Compare the release of `make demo` with the flights themselves: released against true shares.

Run as ``python examples/compare.py data/flights out/flights-2013``. The flights are public, so this
example may print true numbers beside the released ones. For private data nothing may print them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dptrees

MINUTES = (0, 15, 60)
CARRIERS = ("UA", "B6", "AA")


def shares(release: dptrees.Release, delays: pa.Array) -> list[list[str]]:
    """Return the shares of arrivals before some delays, released and true, in percent."""
    answers = release["arrival_delay"].cdf(list(MINUTES))
    total = release["arrival_delay"].cdf(MINUTES[-1]).count / answers["fraction"][-1]
    lines = []
    for minutes, fraction, error in zip(
        MINUTES, answers["fraction"], answers["std_error"], strict=True
    ):
        true = pc.mean(pc.less(delays, minutes).cast(pa.float64())).as_py()
        lines.append(
            [
                f"arrived before {minutes} minutes",
                f"{100 * fraction:.2f} %",
                f"{100 * true:.2f} %",
                f"{100 * (fraction - true):+.2f} %",
                f"{100 * error / total:.2f} %",
            ]
        )
    return lines


def medians(release: dptrees.Release, flights: pa.Table) -> list[list[str]]:
    """Return the median delays of departure of the largest carriers, released and true."""
    lines = []
    for carrier in CARRIERS:
        own = flights.filter(pc.equal(flights["carrier"], carrier))["dep_delay"].drop_null()
        true = pc.quantile(own, 0.5)[0].as_py()
        found = release["departure_delay"].quantiles(0.5, key=carrier)
        released = found.value
        low, high = found["ci_low"][0], found["ci_high"][0]
        lines.append(
            [
                f"median delay of {carrier}, minutes",
                f"{released:g}",
                f"{true:g}",
                f"{released - true:+g}",
                f"{low:g} to {high:g}",
            ]
        )
    return lines


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flights", type=Path, help="folder of the flights")
    parser.add_argument("release", type=Path, help="folder of the release")
    given = parser.parse_args()
    flights = pq.read_table(given.flights, columns=["carrier", "dep_delay", "arr_delay"])
    delays, release = flights["arr_delay"].drop_null(), dptrees.open(given.release)
    counted = release["arrival_delay"].cdf(MINUTES[-1])
    number = counted.count / counted["fraction"][0]
    print(
        f"The release counts about {number:,.0f} of {len(delays):,} arrivals: at most 50 of each "
        "aircraft.\nIts counts describe these arrivals. Its fractions and quantiles describe all "
        "arrivals only\nif aircraft with many flights are like the others."
    )
    heads = ["", "released", "true, of all", "difference", "error of the noise"]
    lines = [heads, *shares(release, delays), *medians(release, flights)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *numbers in lines:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *cells]).rstrip())
    print("Errors: one standard error of a share; the 95 % interval of a median.")


if __name__ == "__main__":
    main()
