"""The command `report`."""

from __future__ import annotations

import argparse

from pipelines.commands.command_parser import Commands, add_command


def add_report(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.reporting import run_report

        return run_report(chosen.release, chosen.path, chosen.tree)

    parser = add_command(
        commands, "report", "Write report.html, one page without network, anew.", run
    )
    parser.add_argument("release", metavar="RELEASE", help="the release's folder")
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        help="of a node of a hierarchy or a sparse tree, such as 44001: the page shows it too, "
        "with the nodes above "
        "and right below it; may be given several times",
    )
    parser.add_argument("--tree", help="the tree; may be left out where there is only one")
