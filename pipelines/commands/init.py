"""The command `init`."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_init(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.draft.writing import run_init

        return run_init(chosen.file, chosen.input, header=chosen.header)

    parser = add_command(
        commands,
        "init",
        "Write a configuration to fill in, from the names and types of columns.",
        run,
    )
    parser.add_argument("file", metavar="FILE", help="a new YAML file")
    parser.add_argument(
        "--input",
        metavar="DATA",
        help="the rows: a Parquet, Arrow or CSV file, a glob or a folder; a "
        "folder of Delta, or iceberg:NAMESPACE.TABLE; no value is read",
    )
    parser.add_argument(
        "--header",
        action="store_true",
        help="the first line of a CSV file names the columns; without it no name is copied, since "
        "that line may be a row",
    )
