"""The parser of the command line, and the commands `release`, `query` and `sample`."""

from __future__ import annotations

import argparse
import difflib
import logging
import re
import time
from collections.abc import Callable
from datetime import date
from typing import Any, NoReturn, TypeAlias

from dptrees.pipelines.monitoring import FORMATS, run_id
from dptrees.pipelines.process import (
    Later,
    parse_seconds,
    time_limit,
    without_collections,
)
from dptrees.pipelines.terminal_text import escaped

FolderRequest = Later("run.output:FolderRequest")
CommandRun, Watch = Later("run.metrics:CommandRun"), Later("run.metrics:Watch")
given_parameters = Later("sections.parameters:given_parameters")
parse_day = Later("run.releasing:parse_day")
run_due, run_release = Later("run.releasing:run_due"), Later("run.releasing:run_release")
run_query, run_sample = Later("query.querying:run_query"), Later("query.querying:run_sample")

EXAMPLES: dict[str, tuple[str, ...]] = {
    "keygen": ("dptrees keygen release.key",),
    "init": ("dptrees init new.yaml --input data/ages.parquet", "dptrees init empty.yaml"),
    "plan": (
        "dptrees plan ages.yaml",
        "dptrees plan ages.yaml --target-error age=25",
        "dptrees plan ages.yaml --json",
    ),
    "ledger": (
        "dptrees ledger init sqlite:///budget.db --dataset people --epsilon 4",
        "dptrees ledger show sqlite:///budget.db",
        "dptrees ledger history sqlite:///budget.db",
    ),
    "check": (
        "dptrees check ages.yaml",
        "dptrees check ages.yaml --rows 1000 --json",
        "dptrees check ages.yaml --no-rows",
    ),
    "release": (
        "dptrees release ages.yaml --json > release.json",
        "dptrees release ages.yaml --repair",
    ),
    "query": (
        "dptrees query out/ages cdf --tree age 18 65",
        "dptrees query out/ages quantile --tree age 0.25 0.5 0.75",
        "dptrees query out/ages range --tree age 18 65 --json",
        "dptrees query out/ages top --tree work -n 3",
        "dptrees query out/ages sum --tree work --paths office home",
        "dptrees query out/ages node --tree work --value office",
        "dptrees query out/ages node --tree months --path 2024-Q3 --children",
        'dptrees query out/ages box --tree both --side age 18 65 --side hours 40 ""',
    ),
    "sample": ("dptrees sample out/ages --tree both -n 1000 --output rows.parquet",),
    "report": ("dptrees report out/ages",),
    "verify": (
        "dptrees verify out/ages",
        "dptrees verify out/ages --key release.key --data ages.yaml",
    ),
    "series": ("dptrees series compact out/daily",),
    "schema": ("dptrees schema > configuration.schema.json",),
}


def examples_text(name: str) -> str | None:
    """What the help of a command ends with; None where there are no examples of it.

    >>> print(examples_text("report"))
    examples:
      dptrees report out/ages
    """
    lines = EXAMPLES.get(name)
    return None if lines is None else "\n  ".join(("examples:", *lines))


_NO_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)")
_NO_OPTION = re.compile(r"unrecognized arguments: (--[\w-]+)")


class CommandParser(argparse.ArgumentParser):
    """Argparse, whose refusals repeat an argument as it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message + self._nearest(message)))

    def _nearest(self, message: str) -> str:
        """What may be meant by a word or an option that there is not."""
        if choice := _NO_CHOICE.search(message):
            known = re.findall(r"[\w-]+", choice["known"])
            near = difflib.get_close_matches(choice["word"], known, n=1)
            return f"; did you mean {near[0]}?" if near else ""
        unknown = _NO_OPTION.match(message)
        near = difflib.get_close_matches(unknown[1], self.options(), 1, 0.7) if unknown else []
        if not near:
            return ""
        # Another command's, or of another question.
        is_misplaced = unknown is not None and near[0] == unknown[1]
        return (
            "; it belongs to another command or query"
            if is_misplaced
            else f"; did you mean {near[0]}?"
        )

    def options(self) -> list[str]:
        """All options of the parser and of those below it."""
        result: list[str] = []
        for action in self._actions:
            result += action.option_strings
            below = action.choices if isinstance(action.choices, dict) else {}
            for parser in below.values():
                result += parser.options()
        return result


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Run = Callable[[argparse.Namespace, list[str]], int]


def add_command(commands: Commands, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    """A command that is run by a function of the chosen options and of those that are left."""
    # Abbreviated options of ours would shadow Beam's.
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=examples_text(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    """Takes the configuration and its parameters."""
    parser.add_argument("config", metavar="CONFIG", help="the YAML file of the release")
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Takes parameters of a configuration."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the configuration, for ${NAME} in it; may be given several times",
    )


Kinds: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_query(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> Any:
        return run_query(chosen)

    parser = add_command(commands, "query", "Query a release; costs no budget.", run)
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="QUERY")
    ordered, nodes = _add_ordered(kinds), [*_add_nodes(kinds), *_add_statistics(kinds)]
    for kind in ordered:
        kind.add_argument("--column", help="the column, if the tree has several")
    for kind in (*ordered, *nodes):
        _add_common(kind)


def _add_ordered(kinds: Kinds) -> list[argparse.ArgumentParser]:
    """The questions about one column with an order."""
    cdf = kinds.add_parser("cdf", help="the number of rows below a value")
    cdf.add_argument("values", nargs="+", metavar="VALUE", help="values of the column")
    cdf.add_argument(
        "--simultaneous",
        action="store_true",
        help="intervals that hold at all values of the tree (and key) at once",
    )
    quantile = kinds.add_parser("quantile", help="the value below which a fraction of rows lies")
    quantile.add_argument("values", nargs="+", metavar="Q", help="fractions from 0 to 1")
    quantile.set_defaults(exact=False)
    median = kinds.add_parser("median", help="the value below which half of the rows lies")
    median.set_defaults(exact=False, kind="quantile", values=["0.5"])
    between = kinds.add_parser("range", help="the number of rows in [LOWER, UPPER)")
    between.add_argument("lower", metavar="LOWER", help="the first value of the range")
    between.add_argument("upper", metavar="UPPER", help="the end of the range, not included")
    for kind in (cdf, between):
        _add_exact(kind)
    return [cdf, quantile, median, between]


def _add_statistics(kinds: Kinds) -> list[argparse.ArgumentParser]:
    """The questions about the values of a column of numbers."""
    parsers = []
    for name, what in (
        ("mean", "the mean of the values"),
        ("variance", "the variance of the values"),
        ("std", "the standard deviation of the values"),
        ("total", "the sum of the values"),
        ("share", "the fraction of the rows that are in a range of values"),
    ):
        parser = kinds.add_parser(name, help=what)
        parser.add_argument(
            "--range",
            nargs=2,
            required=name == "share",
            metavar=("LOWER", "UPPER"),
            help='only values in [LOWER, UPPER), which must be edges of cells; "" means no limit; '
            'the share of one category without an order: its name and ""',
        )
        parser.set_defaults(exact=False)
        parsers.append(parser)
    described = kinds.add_parser(
        "describe", help="rows, mean, standard deviation and quartiles of the values"
    )
    described.set_defaults(exact=False)
    return [*parsers, described]


def _add_nodes(kinds: Kinds) -> list[argparse.ArgumentParser]:
    """The questions about boxes and nodes."""
    box = kinds.add_parser(
        "box", help="the number of rows in a box: a range of values in each of several columns"
    )
    box.add_argument(
        "--side",
        nargs=3,
        action="append",
        required=True,
        metavar=("COLUMN", "LOWER", "UPPER"),
        help='the range [LOWER, UPPER) of a column; "" means no limit; give --side once for '
        "each column",
    )
    total = kinds.add_parser("sum", help="the number of rows in several nodes together")
    named = total.add_mutually_exclusive_group(required=True)
    named.add_argument(
        "--paths",
        nargs="+",
        metavar="PATH",
        help="paths of nodes that do not contain each other; for an ordered tree, values (each "
        'selects its cell) or intervals such as "[20, 30)"; @FILE reads them from a file, '
        "one per line",
    )
    named.add_argument(
        "--paths-file", metavar="FILE", help="a file with one path, value or interval per line"
    )
    for kind in (box, total):
        _add_exact(kind)
    top = kinds.add_parser("top", help="the nodes of a level with the largest counts")
    top.add_argument("-n", type=int, default=10, help="number of nodes (default 10)")
    top.add_argument(
        "--level",
        help="number or name of the level; default: the leaves, or with --path the level below "
        "that node",
    )
    top.add_argument("--path", help="only nodes below this one")
    top.set_defaults(exact=False)
    return [box, total, _add_node(kinds), top]


def _add_node(kinds: Kinds) -> argparse.ArgumentParser:
    node = kinds.add_parser("node", help="the count of one node of the tree")
    node.add_argument(
        "--level", help="the level of the node: its number (0 is the root) or its name"
    )
    which = node.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", type=int, help="the number of the node within its level")
    which.add_argument("--value", help="a value in the node")
    which.add_argument(
        "--path",
        help='the path of a node in a hierarchy or sparse tree, such as 44001 or JFK/LAX; "" is '
        "the root",
    )
    node.add_argument("--children", action="store_true", help="also show the children of the node")
    node.add_argument(
        "--by",
        choices=("name", "count"),
        help="order of the children: by name, with numbers in numeric order (default), or "
        "largest count first",
    )
    node.set_defaults(exact=False)
    return node


def _add_exact(kind: argparse.ArgumentParser) -> None:
    kind.add_argument(
        "--exact", action="store_true", help="fail instead of rounding to the edges of cells"
    )


def add_periods(parser: argparse.ArgumentParser) -> None:
    """The options that select periods of a series.

    Args:
        parser: of a command that reads a release.
    """
    parser.add_argument(
        "--window",
        metavar="FIRST:LAST",
        help="for a series: the periods from FIRST to LAST, both included",
    )
    parser.add_argument(
        "--to-date",
        type=int,
        nargs="?",
        const=0,
        metavar="PERIOD",
        help="for a series: all periods up to PERIOD, as known when PERIOD was released "
        "(default: the last one)",
    )


def _add_common(kind: argparse.ArgumentParser) -> None:
    """What every question takes."""
    kind.add_argument("--tree", help="name of the tree; optional if there is only one")
    kind.add_argument("--key", help="a key of the tree, or all for a table of all keys")
    kind.add_argument(
        "--wide", action="store_true", help="with --key all: one column per key instead of one line"
    )
    add_periods(kind)
    kind.add_argument(
        "--running",
        action="store_true",
        help="for a series: the totals to date, one for each period",
    )
    kind.add_argument(
        "--confidence",
        type=float,
        metavar="C",
        help="confidence level of the intervals (default: as released)",
    )
    form = kind.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="print JSON, for programs, with all digits"
    )
    form.add_argument("--csv", action="store_true", help="print a CSV table, with all digits")


def add_sample(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> Any:
        return run_sample(chosen)

    parser = add_command(
        commands, "sample", "Draw synthetic rows from a release; costs no budget.", run
    )
    parser.add_argument(
        "release", metavar="RELEASE", help="the folder of a release, a run or a series"
    )
    parser.add_argument("--tree", help="name of the tree; optional if there is only one")
    add_periods(parser)
    parser.add_argument(
        "-n", type=int, metavar="ROWS", help="number of rows; default: the released count"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="a new file, .parquet or .csv"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="a whole number; the same seed gives the same rows"
    )


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


def _run(chosen: argparse.Namespace, rest: list[str]) -> Any:
    """Make one release, or those that are due."""
    if not chosen.verbose:
        # An engine's log of a failure repeats the message; Beam warns while it is imported.
        logging.getLogger().setLevel(logging.CRITICAL)
    with without_collections():
        run_release.load()
    request = FolderRequest(nonce=chosen.nonce, repair=chosen.repair, discard=chosen.discard)
    parameters = given_parameters(chosen.set)
    run = CommandRun()

    def watching() -> Any:
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
    try:
        day: date = parse_day(text)
        return day
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
