"""The command `ledger`, with its steps."""

from __future__ import annotations

import argparse

from dptrees.pipelines.commands.command_parser import Commands, add_command


def add_ledger(commands: Commands) -> None:
    def run(chosen: argparse.Namespace, rest: list[str]) -> int:
        from dptrees.pipelines.ledger import commands as ledger

        steps = {"init": ledger.run_init, "show": ledger.run_show}
        steps |= {"history": ledger.run_history, "upgrade": ledger.run_upgrade}
        steps |= {"metrics": ledger.run_metrics}
        return steps[chosen.step](chosen)

    parser = add_command(
        commands, "ledger", "Track the privacy budget of data sets over all releases.", run
    )
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
