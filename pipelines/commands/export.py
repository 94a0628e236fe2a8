"""The command `export`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command

_FORMATS = ("csv", "delta", "iceberg", "parquet")


def add_export(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.export.exporting import ExportTarget, run_export

        target = ExportTarget(format=chosen.to, into=chosen.into, catalog=chosen.catalog)
        return run_export(chosen.release, target, as_json=chosen.json)

    parser = add_command(
        commands,
        "export",
        "Write the tables of a release to files, or to tables of a data lake.",
        run,
    )
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument("--to", required=True, choices=_FORMATS, help="the format")
    parser.add_argument(
        "--into",
        required=True,
        metavar="PLACE",
        help="a folder, with a subfolder for each table; for iceberg a namespace",
    )
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="for iceberg: name of the catalog in pyiceberg's configuration",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
