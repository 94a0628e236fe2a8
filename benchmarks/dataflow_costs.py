"""What a release on Dataflow takes and costs: computed, not measured.

    python -m benchmarks.dataflow_costs [--write docs/deploy/dataflow.md] [--vcpu-hour PRICE] ...

Costs per row and leaf are those that docs/scale.md has measured on one machine; what is assumed of
Dataflow, and the prices, are options with a date, so that they can be replaced by one's own.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from dptrees.dpcore.hierarchy.universe import MOST_WHOLE_LEAVES
from dptrees.pipelines.running.worker_memory import Leaves, machine_for, process_memory

SCALE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- computed: begin -->", "<!-- computed: end -->"
# Rows, leaves of hierarchies, workers.
RELEASES = (
    (10**7, 10**4, 1),
    (330 * 10**6, 8_100_000, 4),
    (10**9, 10**6, 10),
    (10**10, 10**8, 25),
)
PRICES_OF = "2026-11-22"
# Of a worker with the shuffle service: its disk holds no data of the job.
DISK_GIB = 25


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What docs/scale.md has measured.

    Args:
        row, leaf: seconds of one core for each, to read and count, and after that.
        partial: bytes a leaf that each worker's process sends on.
        noisy: bytes a leaf that are sent on after the noise.
    """

    row: float
    leaf: float
    partial: float
    noisy: float

    @classmethod
    def of(cls, text: str) -> Measured:
        """From the text of the page."""
        return cls(
            row=_number(text, "ns per row, read and counted") * 1e-9,
            leaf=_number(text, "ns per leaf in the steps after that") * 1e-9,
            partial=_number(text, "bytes per leaf shuffled as partial histograms"),
            noisy=_number(text, "bytes per leaf shuffled after the noise"),
        )


def _number(text: str, words: str) -> float:
    found = re.search(rf"([0-9.]+) {re.escape(words)}", text)
    if found is None:
        raise SystemExit(f"docs/scale.md: no line with a number and {words!r}")
    return float(found.group(1))


def _leaves(number: int) -> Leaves:
    """The leaves of a hierarchy, which are read in parts where there are many."""
    return Leaves(parted=number) if number > MOST_WHOLE_LEAVES else Leaves(listed=number)


def table(measured: Measured, chosen: argparse.Namespace) -> str:
    """The releases, a line each, in Markdown."""
    lines = [
        "| rows | leaves | workers | vCPUs | minutes | shuffled, GB | keys read | cost, USD |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for rows, leaves, workers in RELEASES:
        machine = machine_for(process_memory(_leaves(leaves)))
        vcpus, processes = machine.cores * workers, machine.processes * workers
        busy = min(processes, vcpus)
        seconds = (rows * measured.row + leaves * measured.leaf) * chosen.slower / busy
        shuffled = leaves * (measured.partial * processes + measured.noisy)
        hours = (chosen.start + seconds) / 3600
        cost = hours * vcpus * chosen.vcpu_hour
        cost += hours * workers * (machine.gib * chosen.gib_hour + DISK_GIB * chosen.disk_gib_hour)
        cost += shuffled / 2**30 * chosen.shuffle_gib
        lines.append(
            f"| {rows:,} | {leaves:,} | {workers} x {machine.name} | {vcpus} | {hours * 60:.0f} | "
            f"{shuffled / 1e9:.2f} | {processes + 1} | {cost:.2f} |"
        )
    return "\n".join(lines)


def page(chosen: argparse.Namespace) -> str:
    """The table, with what it was computed from."""
    return (
        f"{BEGIN}\n{table(Measured.of(SCALE.read_text(encoding='utf-8')), chosen)}\n\n"
        f"Assumed: workers start in {chosen.start} s; a vCPU is {chosen.slower:g} times as slow as "
        f"a core there. Prices, entered on {PRICES_OF} and not claimed to be today's, in USD: "
        f"{chosen.vcpu_hour:g} a vCPU and hour, {chosen.gib_hour:g} a GiB and hour of memory, "
        f"{chosen.disk_gib_hour:g} of disk, {chosen.shuffle_gib:g} a GiB shuffled.\n{END}"
    )


def parser() -> argparse.ArgumentParser:
    """The options: assumptions and prices."""
    made = argparse.ArgumentParser(description="What a release on Dataflow takes; computed.")
    made.add_argument("--write", type=Path, help="into this page, between its marks")
    made.add_argument("--start", type=int, default=240, help="seconds until workers work")
    made.add_argument("--slower", type=float, default=2, help="a vCPU beside a measured core")
    made.add_argument("--vcpu-hour", type=float, default=0.056)
    made.add_argument("--gib-hour", type=float, default=0.003557)
    made.add_argument("--disk-gib-hour", type=float, default=0.000054)
    made.add_argument("--shuffle-gib", type=float, default=0.011)
    return made


def main() -> None:
    chosen = parser().parse_args()
    made = page(chosen)
    if chosen.write is None:
        print(made)
        return
    text = chosen.write.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    chosen.write.write_text(before + made + after, encoding="utf-8")


if __name__ == "__main__":
    main()
