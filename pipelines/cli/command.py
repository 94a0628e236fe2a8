"""The command ``dptrees``, for people and schedulers, with its smaller commands.

It reports a failure in one sentence on standard error, with an exit code of `pipelines.process`;
only a fault of the program itself is shown with its traceback. A command imports only
what it needs, so that it answers at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dptrees.dpcore import __version__
from dptrees.pipelines.cli.release_commands import (
    EXAMPLES,
    QUERY,
    RELEASE,
    SAMPLE,
    Command,
    CommandParser,
    add_config,
    add_set,
)
from dptrees.pipelines.monitoring import Outcome, failure_outcome, report_outcome, use_format
from dptrees.pipelines.process import (
    ExitCode,
    Later,
    end_quickly,
    leave_pandas_out,
    start_quickly,
    stopping,
    without_collections,
)

if TYPE_CHECKING:
    from dptrees.pipelines.show.mechanisms import TargetErrors

given_parameters = Later("sections.parameters:given_parameters")
run_check = Later("check.checking:run_check")
run_compact = Later("query.series_totals:run_compact")
run_init = Later("config.draft:run_init")
run_keygen = Later("proof.keygen:run_keygen")
run_plan = Later("report.planning:run_plan")
run_report = Later("report.summary:run_report")
run_rotation = Later("proof.keygen:run_rotation")
run_schema = Later("config.release_section:run_schema")
run_signing_keygen = Later("proof.keygen:run_signing_keygen")
run_verify = Later("check.verifying:run_verify")
LEDGER = {
    "init": Later("ledger.commands:run_init"),
    "show": Later("ledger.commands:run_show"),
    "history": Later("ledger.commands:run_history"),
    "upgrade": Later("ledger.commands:run_upgrade"),
    "metrics": Later("ledger.commands:run_metrics"),
}


def _run_check(chosen: argparse.Namespace) -> Any:
    logging.getLogger().setLevel(logging.CRITICAL)  # as of release
    with without_collections():
        run_check.load()
    return run_check(
        chosen.config,
        chosen.rest,
        given_parameters(chosen.set),
        most=chosen.rows,
        with_rows=not chosen.no_rows,
        as_json=chosen.json,
    )


def _fill_check(parser: CommandParser) -> None:
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


def _run_init(chosen: argparse.Namespace) -> Any:
    return run_init(chosen.file, chosen.input, header=chosen.header)


def _fill_init(parser: CommandParser) -> None:
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


def _run_keygen(chosen: argparse.Namespace) -> Any:
    made = run_rotation if chosen.rotate else run_keygen
    return (run_signing_keygen if chosen.signing else made)(chosen.file)


def _fill_keygen(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a new file; with --rotate, a file of keys")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rotate",
        action="store_true",
        help="add a new key to FILE as the current key, and keep the others as retired keys",
    )
    what.add_argument(
        "--signing",
        action="store_true",
        help="make a key for signing manifests instead; its public key is written to FILE.pub",
    )


def _run_ledger(chosen: argparse.Namespace) -> Any:
    return LEDGER[chosen.step](chosen)


def _fill_ledger(parser: CommandParser) -> None:
    kinds = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    init = kinds.add_parser("init", help="add a data set; creates the ledger if there is none")
    show = kinds.add_parser("show", help="show the spent budget and the releases that spent it")
    history = kinds.add_parser("history", help="show all events with their times")
    metrics = kinds.add_parser(
        "metrics", help="show the remaining budgets in the Prometheus format"
    )
    upgrade = kinds.add_parser("upgrade", help="upgrade the tables to this version of dptrees")
    for step in (init, show, history, metrics, upgrade):
        step.add_argument(
            "url", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    init.add_argument("--dataset", required=True, metavar="ID", help="the id of the data set")
    init.add_argument("--epsilon", metavar="E", help="the total epsilon of all releases")
    init.add_argument(
        "--delta",
        metavar="D",
        help="the total delta, next to --epsilon; default: no delta may be spent",
    )
    init.add_argument("--rho", metavar="R", help="the total rho, instead of --epsilon")
    init.add_argument(
        "--unit",
        action="append",
        metavar="COLUMN",
        help="a column that identifies the privacy unit; may be given several times; default: the "
        "row",
    )
    init.add_argument(
        "--neighbors",
        choices=["add_remove", "substitute"],
        default="add_remove",
        help="the neighboring relation (default add_remove)",
    )
    init.add_argument(
        "--change-total",
        action="store_true",
        help="change the total of an existing data set; it cannot be below the spent budget",
    )
    show.add_argument("--dataset", metavar="ID", help="this one alone")
    metrics.add_argument(
        "--metrics-file",
        metavar="FILE",
        help="write the metrics to FILE in one step, and print nothing",
    )
    for step in (show, history):
        step.add_argument("--json", action="store_true", help="print JSON, for programs")


def _run_plan(chosen: argparse.Namespace) -> Any:
    return run_plan(
        chosen.config,
        target_errors=chosen.target_error,
        rows_guess=chosen.rows_guess,
        units=chosen.units,
        as_json=chosen.json,
        parameters=given_parameters(chosen.set),
    )


def _fill_plan(parser: CommandParser) -> None:
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
    try:
        errors: TargetErrors = Later("show.mechanisms:TargetErrors").load().from_text(text)
        return errors
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run_report(chosen: argparse.Namespace) -> Any:
    return run_report(chosen.release, chosen.path, chosen.tree)


def _fill_report(parser: CommandParser) -> None:
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        help="also show this node of a hierarchy or sparse tree, such as 44001, with the nodes "
        "above and directly below it; may be given several times",
    )
    parser.add_argument("--tree", help="name of the tree; optional if there is only one")


def _run_schema(chosen: argparse.Namespace) -> Any:
    return run_schema()


def _fill_series(parser: CommandParser) -> None:
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


def _run_verify(chosen: argparse.Namespace) -> Any:
    if chosen.data:
        logging.getLogger().setLevel(logging.CRITICAL)  # as of release
    return run_verify(chosen)


def _fill_verify(parser: CommandParser) -> None:
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument(
        "--signer", metavar="FILE.pub", help="the public key that must have signed the manifest"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        help="the key of the release: its file, or a reference such as env:NAME; see also --data",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="CONFIG",
        help="the configuration of the release, or files of its rows: make the release again in "
        "memory and compare every bit, which shows whether the release was made from these "
        "rows",
    )
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


COMMANDS = (
    Command(
        "init",
        "Write a configuration to fill in, from the names and types of columns.",
        _run_init,
        _fill_init,
    ),
    Command("plan", "Show the plan and its predicted error; reads no data.", _run_plan, _fill_plan),
    Command(
        "check",
        "Check a release before it is made: files, columns, key, ledger, output, engine and rows; "
        "with --no-rows or --json also predicted errors. The results about rows are exact and NOT "
        "private: only for people with access to the raw data. Any Beam option may follow CONFIG. "
        "The exit code is 2 if a row would be refused; with --no-rows that with which the release "
        "would end before its job.",
        _run_check,
        _fill_check,
    ),
    Command(
        "keygen",
        "Make a release key in a new file that only you can read.",
        _run_keygen,
        _fill_keygen,
    ),
    RELEASE,
    QUERY,
    SAMPLE,
    Command(
        "report",
        "Write report.html again: one page that works without a network.",
        _run_report,
        _fill_report,
    ),
    Command(
        "verify",
        "Check that a release is complete and unchanged; optionally compare it with its key "
        "and its rows.",
        _run_verify,
        _fill_verify,
    ),
    Command(
        "ledger",
        "Track the privacy budget of data sets over all releases.",
        _run_ledger,
        _fill_ledger,
    ),
    Command("series", "Maintain the folder of a series.", run_compact, _fill_series),
    Command("schema", "Print the JSON Schema of a configuration, for editors.", _run_schema, None),
)


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
    chosen.rest = rest
    if rest and chosen.command not in ("check", "release"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments is None:
        leave_pandas_out()
    use_format(getattr(chosen, "log_format", "text"), getattr(chosen, "run_id", ""))
    with stopping() as stopped:
        try:
            code = int(chosen.run(chosen))
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
    path = getattr(chosen, "release", None) or getattr(chosen, "series", None)
    if not isinstance(path, str) or not isinstance(error, Later("proof.check:UNREADABLE").load()):
        return None
    reason = Later("check.verifying:reason_unreadable")(path)
    return None if reason is None else Outcome(code=ExitCode.MISTAKE, sentence=reason)


def command_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(
        prog="dptrees", description="Differentially private counts over trees, on Apache Beam."
    )
    parser.add_argument("--version", action="version", version=f"dptrees {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, run, fill in COMMANDS:
        # Abbreviated options of ours would shadow Beam's.
        command = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog="\n  ".join(("examples:", *EXAMPLES[name])),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(run=run)
        command.fill = fill
    return parser


if __name__ == "__main__":
    sys.exit(main())
