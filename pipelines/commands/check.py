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
            chosen.config, chosen.rows, given_parameters(chosen.set), as_json=chosen.json
        )

    parser = add_command(
        commands,
        "check",
        "Check the rows before a release. The results are exact and NOT private: only for "
        "people with access to the raw data.",
        run,
    )
    add_config(parser)
    parser.add_argument("--rows", type=_rows, metavar="N", help="read at most N rows; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _rows(text: str) -> int:
    """The number of a text; argparse says what is wrong with another."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)
