"""The command `series`, with its steps."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_series(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.series.compact import run_compact

        return run_compact(chosen)

    parser = add_command(commands, "series", "Maintain the folder of a series.", run)
    kinds = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    compact = kinds.add_parser(
        "compact", help="delete the sealed files that later runs no longer need; all tables stay"
    )
    compact.add_argument("series", metavar="SERIES", help="the folder of the series")
    compact.add_argument(
        "--keep",
        type=int,
        default=2,
        metavar="RUNS",
        help="number of last runs that keep their sealed files, at least 1 (default 2, so that "
        "the last run can be repaired)",
    )
