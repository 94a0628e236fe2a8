"""The command ``dptrees``: what a person or a scheduler runs.

Exit codes: 0 done; 2 the user's mistake, told in one sentence on standard error; 1 anything else.
Beam is imported by ``release`` alone, so that the other commands answer at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from dpcore import __version__
from pipelines.terminal_text import escaped, print_line

if TYPE_CHECKING:
    from pipelines.accounting.wanted import WantedErrors


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and chosen.command != "release":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        code = int(chosen.run(chosen, rest))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe has gone, as with `| head`
        # Else Python complains at exit that it cannot flush what nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print_line("dptrees: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        print_line(f"dptrees: {sentence}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str | None:
    """What a user's mistake is told as; None for a fault of the program."""
    from pipelines.release_folder import FolderError
    from pipelines.sections.error import ConfigurationError
    from pipelines.user_error import UserError
    from transforms.errors import ReleaseError

    if isinstance(error, ReleaseError):
        return error.sentence
    if isinstance(error, (UserError, ConfigurationError, FolderError)):
        return str(error)
    return None


class _Parser(argparse.ArgumentParser):
    """Argparse, whose refusals repeat an argument as it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dptrees", description="Differentially private counts over trees, on Apache Beam."
    )
    parser.add_argument("--version", action="version", version=f"dptrees {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_plan(commands)
    _add_keygen(commands)
    _add_release(commands)
    _add_query(commands)
    _add_sample(commands)
    _add_report(commands)
    _add_verify(commands)
    _add_ledger(commands)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="the release's YAML file")
    _add_set(parser)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the configuration, for ${NAME} in it; may be given several times",
    )


Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"
Run = Callable[[argparse.Namespace, list[str]], int]


def _add(commands: Commands, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    # Abbreviated options of ours would shadow Beam's.
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=run)
    return parser


def _add_plan(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.planning import run_plan
        from pipelines.sections.parameters import given_parameters

        return run_plan(
            chosen.config,
            wanted=chosen.target_error,
            rows_guess=chosen.rows_guess,
            units=chosen.units,
            as_json=chosen.json,
            given=given_parameters(chosen.set),
        )

    parser = _add(commands, "plan", "Show the plan and its predicted error; reads no data.", run)
    _add_config(parser)
    parser.add_argument(
        "--target-error",
        type=_wanted_errors,
        metavar="ERROR",
        help="find the budget of the whole release at which what its trees are for is at most this "
        "far off: 25, or 1%% of --rows-guess, or of some trees NAME=25,NAME=1%%",
    )
    parser.add_argument(
        "--rows-guess",
        type=float,
        metavar="ROWS",
        help="a public guess of the number of rows, of which a --target-error is a part",
    )
    parser.add_argument(
        "--units",
        metavar="RELEASE",
        help="a release of how many rows privacy units have (a tree whose domain has the type "
        "unit_rows): also show what bounds leave out, and the errors with them",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def _wanted_errors(text: str) -> WantedErrors:
    """The errors of a text; argparse tells what is wrong with another."""
    from pipelines.accounting.wanted import WantedErrors

    try:
        return WantedErrors.of_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_keygen(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.keygen import run_keygen, run_rotation, run_signing_keygen

        if chosen.signing:
            return run_signing_keygen(chosen.file)
        return run_rotation(chosen.file) if chosen.rotate else run_keygen(chosen.file)

    parser = _add(commands, "keygen", "Make a release key in a new file, yours alone.", run)
    parser.add_argument("file", metavar="FILE")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--rotate",
        action="store_true",
        help="make a new key the current one of FILE, and keep the others as retired",
    )
    what.add_argument(
        "--signing",
        action="store_true",
        help="make a key that signs manifests instead, and its public key in FILE.pub",
    )


def _add_release(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        if not chosen.verbose:
            # An engine's log of a failure repeats what is told; Beam warns while it is imported.
            logging.getLogger().setLevel(logging.CRITICAL)
        from pipelines.releasing import run_release
        from pipelines.running.output import Wanted
        from pipelines.sections.parameters import given_parameters

        wanted = Wanted(nonce=chosen.nonce, repair=chosen.repair, discard=chosen.discard)
        return run_release(chosen.config, rest, wanted, given_parameters(chosen.set))

    parser = _add(
        commands,
        "release",
        "Make the release. Any Beam option may follow CONFIG, such as --runner=FlinkRunner.",
        run,
    )
    _add_config(parser)
    parser.add_argument("--verbose", action="store_true", help="show the engine's own log")
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--repair",
        action="store_true",
        help="make damaged files of a finished release again, from the same rows and key; fails "
        "where the rows are others, and so tells that they are",
    )
    again.add_argument(
        "--discard",
        action="store_true",
        help="delete what an interrupted run left, and spend the budget anew",
    )
    parser.add_argument(
        "--nonce",
        type=_nonce,
        metavar="HEX",
        help="32 hexadecimal digits, in place of the random nonce of the folder: only to compare "
        "engines or files, since releases of one key and nonce show whether their rows are equal",
    )


def _nonce(text: str) -> bytes:
    """The nonce of a text; argparse tells what is wrong with another."""
    if not re.fullmatch("[0-9a-fA-F]{32}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be 32 hexadecimal digits")
    return bytes.fromhex(text)


def _add_query(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.querying import run_query

        return run_query(chosen)

    parser = _add(commands, "query", "Ask a release; costs no budget.", run)
    parser.add_argument("release", metavar="RELEASE", help="the release's folder")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="QUESTION")
    cdf = kinds.add_parser("cdf", help="how many rows lie below a value")
    cdf.add_argument("values", nargs="+", metavar="VALUE")
    cdf.add_argument(
        "--simultaneous",
        action="store_true",
        help="intervals that hold at all values of the tree (and key) at once",
    )
    quantile = kinds.add_parser("quantile", help="the value below which a fraction of rows lies")
    quantile.add_argument("values", nargs="+", metavar="Q")
    between = kinds.add_parser("range", help="how many rows lie in [LOWER, UPPER)")
    between.add_argument("lower", metavar="LOWER")
    between.add_argument("upper", metavar="UPPER")
    box = kinds.add_parser("box", help="how many rows lie in a box of several columns")
    box.add_argument(
        "--side",
        nargs=3,
        action="append",
        required=True,
        metavar=("COLUMN", "LOWER", "UPPER"),
        help='[LOWER, UPPER) of a column; "" leaves a side open; once for each column',
    )
    for kind in (cdf, quantile, between):
        kind.add_argument("--column", help="of a tree over several columns")
    node = kinds.add_parser("node", help="the count of one node of the tree")
    node.add_argument("--level", help="its number, 0 is the root, or its name")
    which = node.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", type=int, help="its number within the level")
    which.add_argument("--value", help="a value that it holds")
    which.add_argument(
        "--path",
        help='of a hierarchy or a sparse tree, such as 44001 or JFK/LAX; "" is the root',
    )
    node.add_argument("--children", action="store_true", help="and those right below the path")
    top = kinds.add_parser("top", help="the nodes of a level with the largest counts")
    top.add_argument("-n", type=int, default=10, help="how many (default 10)")
    top.add_argument("--level", help="its number or name; default: the leaves")
    for kind in (cdf, quantile, between, box, node, top):
        kind.add_argument("--tree", help="its name; may be left out where there is only one")
        kind.add_argument("--key", help="of a tree with keys")
        kind.add_argument(
            "--window", metavar="FIRST:LAST", help="of a series: these periods, both inside"
        )
        kind.add_argument(
            "--to-date",
            type=int,
            nargs="?",
            const=0,
            metavar="PERIOD",
            help="of a series: all periods, as was known once this one was released (default: the "
            "last one)",
        )
        kind.add_argument(
            "--running", action="store_true", help="of a series: to date, at each of its periods"
        )
        kind.add_argument(
            "--confidence", type=float, metavar="C", help="of the intervals (default: as released)"
        )
        kind.add_argument("--json", action="store_true", help="for programs")


def _add_sample(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.sampling import run_sample

        return run_sample(chosen)

    parser = _add(commands, "sample", "Draw synthetic rows from a release; costs no budget.", run)
    parser.add_argument("release", metavar="RELEASE", help="the release's folder")
    parser.add_argument("--tree", help="its name; may be left out where there is only one")
    parser.add_argument(
        "-n", type=int, metavar="ROWS", help="how many; default: the released count"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="a new file, .parquet or .csv"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="any whole number: the same rows again"
    )


def _add_report(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.reporting import run_report

        return run_report(chosen.release, chosen.path, chosen.tree)

    parser = _add(commands, "report", "Write report.html, one page without network, anew.", run)
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


def _add_verify(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        if chosen.data:
            logging.getLogger().setLevel(logging.CRITICAL)  # as of release
        from pipelines.proof.verifying import run_verify

        return run_verify(chosen)

    parser = _add(commands, "verify", "Check a release against itself, its key and its rows.", run)
    parser.add_argument("release", metavar="RELEASE", help="the release's folder")
    parser.add_argument("--signer", metavar="FILE.pub", help="who must have signed the manifest")
    parser.add_argument(
        "--key", metavar="FILE", help="the release's key: its file, or env:NAME; see also --data"
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="CONFIG",
        help="the release's configuration, or files of its rows: makes the release again in memory "
        "and compares every bit, which tells whether the rows are those of the release",
    )
    _add_set(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def _add_ledger(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.ledger import commands as ledger

        steps = {"init": ledger.run_init, "show": ledger.run_show}
        steps |= {"history": ledger.run_history, "upgrade": ledger.run_upgrade}
        return steps[chosen.step](chosen)

    parser = _add(commands, "ledger", "Data sets and their budgets over all releases.", run)
    kinds = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    init = kinds.add_parser("init", help="add a data set; makes the ledger where there is none")
    show = kinds.add_parser("show", help="what is spent, and on which releases")
    history = kinds.add_parser("history", help="what happened, and when")
    upgrade = kinds.add_parser("upgrade", help="bring the tables to this version of dptrees")
    for step in (init, show, history, upgrade):
        step.add_argument(
            "url", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        )
    init.add_argument("--dataset", required=True, metavar="ID", help="the id of the data set")
    init.add_argument("--epsilon", metavar="E", help="the total of all its releases")
    init.add_argument("--delta", metavar="D", help="beside --epsilon; without it none may be spent")
    init.add_argument("--rho", metavar="R", help="the total, in place of --epsilon")
    init.add_argument(
        "--unit",
        action="append",
        metavar="COLUMN",
        help="a column that names the privacy unit; may be given several times; default: the row",
    )
    init.add_argument(
        "--neighbors",
        choices=["add_remove", "substitute"],
        default="add_remove",
        help="the neighbouring relation (default add_remove)",
    )
    init.add_argument(
        "--change-total",
        action="store_true",
        help="of a data set that is there; not below what is spent",
    )
    show.add_argument("--dataset", metavar="ID", help="this one alone")
    for step in (show, history):
        step.add_argument("--json", action="store_true", help="for programs")


if __name__ == "__main__":
    sys.exit(main())
