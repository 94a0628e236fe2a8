"""The command ``dptrees``, for people and schedulers.

Its exit codes are in `pipelines.faults.exit_code`. It reports a failure in one sentence on standard
error; only a fault of the program itself is shown with its traceback.
Only the code that reads rows imports Beam, so that the other commands answer at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dptrees.dpcore import __version__
from dptrees.pipelines.commands.check import add_check
from dptrees.pipelines.commands.command_parser import CommandParser
from dptrees.pipelines.commands.init import add_init
from dptrees.pipelines.commands.keygen import add_keygen
from dptrees.pipelines.commands.ledger import add_ledger
from dptrees.pipelines.commands.plan import add_plan
from dptrees.pipelines.commands.query import add_query
from dptrees.pipelines.commands.release import add_release
from dptrees.pipelines.commands.report import add_report
from dptrees.pipelines.commands.sample import add_sample
from dptrees.pipelines.commands.schema import add_schema
from dptrees.pipelines.commands.series import add_series
from dptrees.pipelines.commands.verify import add_verify
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.log import report_outcome, use_format
from dptrees.pipelines.faults.outcome import Outcome, failure_outcome
from dptrees.pipelines.faults.stopping import stopping
from dptrees.pipelines.quick_start import end_quickly, start_quickly


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: of the command line; None in a process that runs this command alone, with the
            arguments of that process.
    """
    if arguments is not None:
        return _run(arguments)
    start_quickly()
    try:
        return _run(None)
    finally:
        end_quickly()


def _run(arguments: Sequence[str] | None) -> int:
    """Run the command and report its faults."""
    parser = command_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.command not in ("check", "release"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    use_format(getattr(chosen, "log_format", "text"), getattr(chosen, "run_id", ""))
    with stopping() as stopped:
        try:
            code = int(chosen.run(chosen, rest))
            sys.stdout.flush()
            return code
        except BrokenPipeError:  # the reader of a pipe has gone, as with `| head`
            # Else Python complains at exit that it cannot flush what nobody reads.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.DONE
        except (Exception, KeyboardInterrupt) as error:
            outcome = failure_outcome(error, stopped.code) or _unreadable(chosen, error)
            if outcome is None:
                raise
            report_outcome(outcome)
            return outcome.code


def _unreadable(chosen: argparse.Namespace, error: BaseException) -> Outcome | None:
    """How an error of a command that reads a release is reported, if the release is at fault."""
    from dptrees.pipelines.proof.check import UNREADABLE

    path = getattr(chosen, "release", None) or getattr(chosen, "series", None)
    if not isinstance(path, str) or not isinstance(error, UNREADABLE):
        return None
    from dptrees.pipelines.proof.verifying import reason_unreadable

    reason = reason_unreadable(path)
    return None if reason is None else Outcome(code=ExitCode.MISTAKE, sentence=reason)


def command_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(
        prog="dptrees", description="Differentially private counts over trees, on Apache Beam."
    )
    parser.add_argument("--version", action="version", version=f"dptrees {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_init(commands)
    add_plan(commands)
    add_check(commands)
    add_keygen(commands)
    add_release(commands)
    add_query(commands)
    add_sample(commands)
    add_report(commands)
    add_verify(commands)
    add_ledger(commands)
    add_series(commands)
    add_schema(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
