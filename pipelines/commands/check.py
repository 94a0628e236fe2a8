"""The command `check`."""

from __future__ import annotations

import argparse
import logging

from dptrees.pipelines.commands.command_parser import Commands, add_command, add_config
from dptrees.pipelines.quick_start import import_beam, without_collections


def add_check(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        logging.getLogger().setLevel(logging.CRITICAL)  # as of release
        with without_collections():
            import_beam()
            from dptrees.pipelines.checking.checking import run_check
            from dptrees.pipelines.sections.parameters import given_parameters

        return run_check(
            chosen.config,
            rest,
            given_parameters(chosen.set),
            most=chosen.rows,
            with_rows=not chosen.no_rows,
            as_json=chosen.json,
        )

    parser = add_command(
        commands,
        "check",
        "Check a release before it is made: files, columns, key, ledger, output, engine and rows; "
        "with --no-rows or --json also predicted errors. The results about rows are exact and NOT "
        "private: only for people with access to the raw data. Any Beam option may follow CONFIG. "
        "The exit code is 2 if a row would be refused; with --no-rows that with which the release "
        "would end before its job.",
        run,
    )
    add_config(parser)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--rows", type=_rows, metavar="N", help="read at most N rows; default: all")
    rows.add_argument(
        "--no-rows",
        action="store_true",
        help="read no row, so that no value of a row decides what is reported. For operators: "
        "names, sizes and times of files are not covered by the guarantee, so do not publish the "
        "report",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _rows(text: str) -> int:
    """The number of a text; argparse says what is wrong with another."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)
