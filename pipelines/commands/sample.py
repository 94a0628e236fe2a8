"""The command `sample`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command
from dptrees.pipelines.commands.query import add_periods


def add_sample(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.sampling import run_sample

        return run_sample(chosen)

    parser = add_command(
        commands, "sample", "Draw synthetic rows from a release; costs no budget.", run
    )
    parser.add_argument(
        "release", metavar="RELEASE", help="the folder of a release, a run or a series"
    )
    parser.add_argument("--tree", help="name of the tree; optional if there is only one")
    add_periods(parser)
    parser.add_argument(
        "-n", type=int, metavar="ROWS", help="number of rows; default: the released count"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="a new file, .parquet or .csv"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="a whole number; the same seed gives the same rows"
    )
