"""The parser of the command line, and the commands `release`, `query` and `sample`."""

from __future__ import annotations

import argparse
import difflib
import logging
import re
import time
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple, NoReturn, TypeAlias

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
run_query, run_sample = Later("query.querying:run_query"), Later("query.sampling:run_sample")

# What the help of each command ends with.
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
        "dptrees query out/ages count --tree jobs farm office",
        "dptrees query out/ages above 500 --tree work",
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


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Fill: TypeAlias = "Callable[[CommandParser], None]"
_NO_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)")
_NO_OPTION = re.compile(r"unrecognized arguments: (--[\w-]+)")


class CommandParser(argparse.ArgumentParser):
    """Argparse, whose refusals repeat an argument as it was given.

    Attributes:
        fill: adds the arguments when the parser is used: a command line uses few of all parsers.
    """

    fill: Fill | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.filled()
        return super().parse_known_args(args, namespace)

    def filled(self) -> CommandParser:
        """Return the parser with its arguments."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        return self

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
        for action in self.filled()._actions:
            result += action.option_strings
            below = action.choices if isinstance(action.choices, dict) else {}
            for parser in below.values():
                result += parser.options()
        return result


class Command(NamedTuple):
    """A command of the command line.

    Attributes:
        name: the word.
        text: what it does.
        run: makes its exit code of the chosen options, which have those that are left as `rest`.
        fill: adds its arguments; None: it takes none.
    """

    name: str
    text: str
    run: Callable[[argparse.Namespace], int]
    fill: Fill | None


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


def _fill_query(parser: CommandParser) -> None:
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="QUERY")
    for name, (text, fill) in QUERIES.items():
        kinds.add_parser(name, help=text).fill = fill


def _fill_cdf(parser: CommandParser) -> None:
    parser.add_argument("values", nargs="+", metavar="VALUE", help="values of the column")
    parser.add_argument(
        "--simultaneous",
        action="store_true",
        help="intervals that hold at all values of the tree (and key) at once",
    )
    _add_exact(parser)
    _add_common(parser, of_column=True)


def _fill_count(parser: CommandParser) -> None:
    parser.add_argument("values", nargs="+", metavar="VALUE", help="values of the column")
    parser.set_defaults(exact=False)
    _add_common(parser)


def _fill_quantile(parser: CommandParser) -> None:
    parser.add_argument("values", nargs="+", metavar="Q", help="fractions from 0 to 1")
    parser.set_defaults(exact=False)
    _add_common(parser, of_column=True)


def _fill_median(parser: CommandParser) -> None:
    parser.set_defaults(exact=False, kind="quantile", values=["0.5"])
    _add_common(parser, of_column=True)


def _fill_range(parser: CommandParser) -> None:
    parser.add_argument("lower", metavar="LOWER", help="the first value of the range")
    parser.add_argument("upper", metavar="UPPER", help="the end of the range, not included")
    _add_exact(parser)
    _add_common(parser, of_column=True)


def _fill_statistic(parser: CommandParser) -> None:
    """Arguments of a query about the values of a column of numbers."""
    parser.add_argument(
        "--range",
        nargs=2,
        required=parser.prog.endswith(" share"),
        metavar=("LOWER", "UPPER"),
        help='only values in [LOWER, UPPER), which must be edges of cells; "" means no limit; '
        'the share of one category without an order: its name and ""',
    )
    _fill_describe(parser)


def _fill_describe(parser: CommandParser) -> None:
    parser.set_defaults(exact=False)
    _add_common(parser)


def _fill_box(parser: CommandParser) -> None:
    parser.add_argument(
        "--side",
        nargs=3,
        action="append",
        required=True,
        metavar=("COLUMN", "LOWER", "UPPER"),
        help='the range [LOWER, UPPER) of a column; "" means no limit; give --side once for '
        "each column",
    )
    _add_exact(parser)
    _add_common(parser)


def _fill_sum(parser: CommandParser) -> None:
    named = parser.add_mutually_exclusive_group(required=True)
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
    _add_exact(parser)
    _add_common(parser)


def _fill_top(parser: CommandParser) -> None:
    parser.add_argument("-n", type=int, default=10, help="number of nodes (default 10)")
    parser.add_argument(
        "--among",
        metavar="FILE",
        help="for a sketch: only the values in this file, one per line",
    )
    _add_level(parser)


def _add_level(parser: CommandParser) -> None:
    """Takes a level and a path above it, and what every question takes."""
    parser.add_argument(
        "--level",
        help="number or name of the level; default: the leaves, or with --path the level below "
        "that node",
    )
    parser.add_argument("--path", help="only nodes below this one")
    parser.set_defaults(exact=False)
    _add_common(parser)


def _fill_above(parser: CommandParser) -> None:
    parser.add_argument("threshold", nargs="?", metavar="ROWS", help="the number of rows")
    parser.add_argument(
        "--by",
        metavar="FILE",
        help="thresholds of their own for some nodes: a CSV file with a path (a value or interval "
        "of an ordered tree) and a number of rows on each line",
    )
    parser.add_argument(
        "--simultaneous", action="store_true", help="verdicts that hold for all nodes at once"
    )
    _add_level(parser)


def _fill_node(parser: CommandParser) -> None:
    parser.add_argument(
        "--level", help="the level of the node: its number (0 is the root) or its name"
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", type=int, help="the number of the node within its level")
    which.add_argument("--value", help="a value in the node")
    which.add_argument(
        "--path",
        help='the path of a node in a hierarchy or sparse tree, such as 44001 or JFK/LAX; "" is '
        "the root",
    )
    parser.add_argument(
        "--children", action="store_true", help="also show the children of the node"
    )
    parser.add_argument(
        "--by",
        choices=("name", "count"),
        help="order of the children: by name, with numbers in numeric order (default), or "
        "largest count first",
    )
    parser.set_defaults(exact=False)
    _add_common(parser)


# The questions, each with its help and what adds its arguments.
QUERIES: dict[str, tuple[str, Fill]] = {
    "cdf": ("the number of rows below a value", _fill_cdf),
    "count": ("the number of rows with a value, in a sketch", _fill_count),
    "quantile": ("the value below which a fraction of rows lies", _fill_quantile),
    "median": ("the value below which half of the rows lies", _fill_median),
    "range": ("the number of rows in [LOWER, UPPER)", _fill_range),
    "box": ("the number of rows in a box: a range of values in each of several columns", _fill_box),
    "sum": ("the number of rows in several nodes together", _fill_sum),
    "top": ("the nodes of a level with the largest counts", _fill_top),
    "above": ("the nodes that hold at least so many rows, surely or perhaps", _fill_above),
    "node": ("the count of one node of the tree", _fill_node),
    "mean": ("the mean of the values", _fill_statistic),
    "variance": ("the variance of the values", _fill_statistic),
    "std": ("the standard deviation of the values", _fill_statistic),
    "total": ("the sum of the values", _fill_statistic),
    "share": ("the fraction of the rows that are in a range of values", _fill_statistic),
    "describe": ("rows, mean, standard deviation and quartiles of the values", _fill_describe),
}


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


def _add_common(kind: argparse.ArgumentParser, *, of_column: bool = False) -> None:
    """What every question takes, and a question about one column."""
    if of_column:
        kind.add_argument("--column", help="the column, if the tree has several")
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


def _fill_sample(parser: CommandParser) -> None:
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


def _fill_release(parser: CommandParser) -> None:
    _add_options(parser)
    _add_telling(parser)
    _add_again(parser)


def _run_release(chosen: argparse.Namespace) -> Any:
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
                chosen.config, chosen.rest, request, parameters, as_json=chosen.json, watch=watch
            )
    return run_due(
        chosen.config,
        chosen.rest,
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


RELEASE = Command(
    "release",
    "Make the release. Any Beam option may follow CONFIG, such as --runner=FlinkRunner.",
    _run_release,
    _fill_release,
)
QUERY = Command("query", "Query a release; costs no budget.", run_query, _fill_query)
SAMPLE = Command(
    "sample", "Draw synthetic rows from a release; costs no budget.", run_sample, _fill_sample
)
