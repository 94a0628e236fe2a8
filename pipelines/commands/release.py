"""The command `release`."""

from __future__ import annotations

import argparse
import logging
import re
import time
from datetime import date

from dptrees.pipelines.commands.command_parser import Commands, add_command, add_config
from dptrees.pipelines.faults.log import FORMATS, run_id
from dptrees.pipelines.faults.time_limit import parse_seconds, time_limit
from dptrees.pipelines.quick_start import import_beam, without_collections


def add_release(commands: Commands) -> None:
    parser = add_command(
        commands,
        "release",
        "Make the release. Any Beam option may follow CONFIG, such as --runner=FlinkRunner.",
        _run,
    )
    _add_options(parser)
    _add_telling(parser)
    _add_again(parser)


def _run(chosen: argparse.Namespace, rest: list[str]) -> int:
    """Make one release, or those that are due."""
    if not chosen.verbose:
        # An engine's log of a failure repeats the message; Beam warns while it is imported.
        logging.getLogger().setLevel(logging.CRITICAL)
    with without_collections():
        import_beam()
        from dptrees.pipelines.operations.run_metrics import CommandRun
        from dptrees.pipelines.operations.watch import Watch
        from dptrees.pipelines.releasing import run_due, run_release
        from dptrees.pipelines.running.output import FolderRequest
        from dptrees.pipelines.sections.parameters import given_parameters

    request = FolderRequest(nonce=chosen.nonce, repair=chosen.repair, discard=chosen.discard)
    parameters = given_parameters(chosen.set)
    run = CommandRun()

    def watching() -> Watch:
        return Watch(
            config=chosen.config,
            metrics_file=chosen.metrics_file,
            run=run,
        )

    too_long = (
        f"--timeout: the run took longer than {chosen.timeout} s and was stopped; the same "
        "command continues from there"
    )
    if chosen.through is None:
        with watching() as watch, time_limit(chosen.timeout, too_long):
            return run_release(
                chosen.config, rest, request, parameters, as_json=chosen.json, watch=watch
            )
    return run_due(
        chosen.config,
        rest,
        parameters,
        request=request,
        through=chosen.through,
        as_json=chosen.json,
        watching=watching,
        limit=lambda: time_limit(
            None if chosen.timeout is None else max(0.01, run.begun + chosen.timeout - time.time()),
            too_long,
        ),
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--through",
        type=_day,
        metavar="DATE",
        help="for a series by days, instead of --set date=DATE: release every missing day up to "
        "DATE, which may be the word yesterday (in UTC)",
    )
    parser.add_argument(
        "--timeout",
        type=_duration,
        metavar="DURATION",
        help="stop the run, and its job on an engine, after this time (90s, 30m, 6h), with exit "
        "code 75",
    )


def _add_telling(parser: argparse.ArgumentParser) -> None:
    """Options of what a run reports, and where."""
    parser.add_argument("--verbose", action="store_true", help="show the engine's own log")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a report of the release as JSON on standard output",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default="text",
        help="messages on standard error: text for people, or one JSON event per line for programs",
    )
    parser.add_argument(
        "--run-id",
        type=_run_id,
        default="",
        metavar="ID",
        help="the id of this run in a scheduler, for logs; default: the environment variable "
        "DPTREES_RUN_ID, else a new id",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="FILE",
        help="write metrics of this run to FILE in the Prometheus format, also if the run fails",
    )


def _add_again(parser: argparse.ArgumentParser) -> None:
    """Options of a second run into a folder."""
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--repair",
        action="store_true",
        help="restore damaged files of a finished release from the same rows and key; fails if "
        "the rows differ, which reveals that they differ",
    )
    again.add_argument(
        "--discard",
        action="store_true",
        help="delete the files of an interrupted run and start again; this spends the budget a "
        "second time",
    )
    parser.add_argument(
        "--nonce",
        type=_nonce,
        metavar="HEX",
        help="32 hexadecimal digits instead of a random nonce; only for comparing engines or "
        "files, because two releases with one key and nonce reveal whether their rows are "
        "equal",
    )


def _day(text: str) -> date:
    """The day of a text; argparse says what is wrong with another."""
    from dptrees.pipelines.running.due import parse_day

    try:
        return parse_day(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a date such as 2013-01-31, or yesterday"
        ) from None


def _duration(text: str) -> int:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run_id(text: str) -> str:
    try:
        return run_id(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _nonce(text: str) -> bytes:
    """The nonce of a text; argparse says what is wrong with another."""
    if not re.fullmatch("[0-9a-fA-F]{32}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be 32 hexadecimal digits")
    return bytes.fromhex(text)
