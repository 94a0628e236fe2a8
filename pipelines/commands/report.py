"""The command `report`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_report(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.reporting import run_report

        return run_report(chosen.release, chosen.path, chosen.tree)

    parser = add_command(
        commands, "report", "Write report.html again: one page that works without a network.", run
    )
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        help="also show this node of a hierarchy or sparse tree, such as 44001, with the nodes "
        "above and directly below it; may be given several times",
    )
    parser.add_argument("--tree", help="name of the tree; optional if there is only one")
