"""The command `query`: the options of a query to a release."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from dptrees.pipelines.commands.command_parser import Commands, add_command

Kinds: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_query(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.querying import run_query

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
