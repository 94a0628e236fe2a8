"""The command `query`: the options of a query to a release."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from pipelines.commands.command_parser import Commands, add_command

Kinds: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_query(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from pipelines.querying import run_query

        return run_query(chosen)

    parser = add_command(commands, "query", "Ask a release; costs no budget.", run)
    parser.add_argument("release", metavar="RELEASE", help="the release's folder")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="QUESTION")
    ordered, nodes = _add_ordered(kinds), [*_add_nodes(kinds), *_add_statistics(kinds)]
    for kind in ordered:
        kind.add_argument("--column", help="of a tree over several columns")
    for kind in (*ordered, *nodes):
        _add_common(kind)


def _add_ordered(kinds: Kinds) -> list[argparse.ArgumentParser]:
    """The questions about one column with an order."""
    cdf = kinds.add_parser("cdf", help="how many rows lie below a value")
    cdf.add_argument("values", nargs="+", metavar="VALUE")
    cdf.add_argument(
        "--simultaneous",
        action="store_true",
        help="intervals that hold at all values of the tree (and key) at once",
    )
    quantile = kinds.add_parser("quantile", help="the value below which a fraction of rows lies")
    quantile.add_argument("values", nargs="+", metavar="Q")
    quantile.set_defaults(exact=False)
    median = kinds.add_parser("median", help="the value below which half of the rows lies")
    median.set_defaults(exact=False, kind="quantile", values=["0.5"])
    between = kinds.add_parser("range", help="how many rows lie in [LOWER, UPPER)")
    between.add_argument("lower", metavar="LOWER")
    between.add_argument("upper", metavar="UPPER")
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
        ("total", "the values added up"),
        ("share", "the part of all rows that a range of values holds"),
    ):
        parser = kinds.add_parser(name, help=what)
        parser.add_argument(
            "--range",
            nargs=2,
            required=name == "share",
            metavar=("LOWER", "UPPER"),
            help='only values in [LOWER, UPPER), edges of cells; "" leaves a side open',
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
    box = kinds.add_parser("box", help="how many rows lie in a box of several columns")
    box.add_argument(
        "--side",
        nargs=3,
        action="append",
        required=True,
        metavar=("COLUMN", "LOWER", "UPPER"),
        help='[LOWER, UPPER) of a column; "" leaves a side open; once for each column',
    )
    total = kinds.add_parser("sum", help="how many rows several nodes have together")
    named = total.add_mutually_exclusive_group(required=True)
    named.add_argument(
        "--paths",
        nargs="+",
        metavar="PATH",
        help="of nodes, none below another; of an ordered tree values, each for its cell, or "
        'intervals such as "[20, 30)"; @FILE reads them from a file, one a line',
    )
    named.add_argument("--paths-file", metavar="FILE", help="that has one of them a line")
    for kind in (box, total):
        _add_exact(kind)
    top = kinds.add_parser("top", help="the nodes of a level with the largest counts")
    top.add_argument("-n", type=int, default=10, help="how many (default 10)")
    top.add_argument(
        "--level", help="its number or name; default: the leaves, or with --path the level below it"
    )
    top.add_argument("--path", help="only nodes below this one")
    top.set_defaults(exact=False)
    return [box, total, _add_node(kinds), top]


def _add_node(kinds: Kinds) -> argparse.ArgumentParser:
    node = kinds.add_parser("node", help="the count of one node of the tree")
    node.add_argument("--level", help="its number, 0 is the root, or its name")
    which = node.add_mutually_exclusive_group(required=True)
    which.add_argument("--node", type=int, help="its number within the level")
    which.add_argument("--value", help="a value that it holds")
    which.add_argument(
        "--path",
        help='of a hierarchy or a sparse tree, such as 44001 or JFK/LAX; "" is the root',
    )
    node.add_argument("--children", action="store_true", help="also the children of the node")
    node.add_argument(
        "--by",
        choices=("name", "count"),
        help="the order of the children: names with numbers by their value (default), or the "
        "largest first",
    )
    node.set_defaults(exact=False)
    return node


def _add_exact(kind: argparse.ArgumentParser) -> None:
    kind.add_argument("--exact", action="store_true", help="refuse to round to the edges of cells")


def add_periods(parser: argparse.ArgumentParser) -> None:
    """The options that select periods of a series.

    Args:
        parser: of a command that reads a release.
    """
    parser.add_argument(
        "--window", metavar="FIRST:LAST", help="of a series: these periods, both inside"
    )
    parser.add_argument(
        "--to-date",
        type=int,
        nargs="?",
        const=0,
        metavar="PERIOD",
        help="of a series: all periods, as was known once this one was released (default: the "
        "last one)",
    )


def _add_common(kind: argparse.ArgumentParser) -> None:
    """What every question takes."""
    kind.add_argument("--tree", help="its name; may be left out where there is only one")
    kind.add_argument("--key", help="of a tree with keys; all: a table of all keys")
    kind.add_argument(
        "--wide", action="store_true", help="with --key all: a column a key, not a line"
    )
    add_periods(kind)
    kind.add_argument(
        "--running", action="store_true", help="of a series: to date, at each of its periods"
    )
    kind.add_argument(
        "--confidence", type=float, metavar="C", help="of the intervals (default: as released)"
    )
    form = kind.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs, in full")
    form.add_argument("--csv", action="store_true", help="as a table of CSV, in full")
