"""The command `plan`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dptrees.pipelines.commands.command_parser import Commands, add_command, add_config

if TYPE_CHECKING:
    from dptrees.pipelines.accounting.target_errors import TargetErrors


def add_plan(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.planning import run_plan
        from dptrees.pipelines.sections.parameters import given_parameters

        return run_plan(
            chosen.config,
            target_errors=chosen.target_error,
            rows_guess=chosen.rows_guess,
            units=chosen.units,
            as_json=chosen.json,
            parameters=given_parameters(chosen.set),
        )

    parser = add_command(
        commands, "plan", "Show the plan and its predicted error; reads no data.", run
    )
    add_config(parser)
    parser.add_argument(
        "--target-error",
        type=_target_errors,
        metavar="ERROR",
        help="find the budget of the whole release at which the predicted errors of its trees "
        "are at most ERROR: a number of rows such as 25, or 1%% of --rows-guess, or "
        "NAME=25,NAME=1%% for some of the trees",
    )
    parser.add_argument(
        "--rows-guess",
        type=float,
        metavar="ROWS",
        help="a public guess of the number of rows; needed for a --target-error in percent",
    )
    parser.add_argument(
        "--units",
        metavar="RELEASE",
        help="a release that counts the rows of privacy units (by a tree whose domain has the "
        "type unit_rows): also show how many rows each bound drops, and the errors with it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _target_errors(text: str) -> TargetErrors:
    """The errors of a text; argparse says what is wrong with another."""
    from dptrees.pipelines.accounting.target_errors import TargetErrors

    try:
        return TargetErrors.from_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
