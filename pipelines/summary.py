"""A release in a few lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from dpcore.privacy.budget import Measure
from dpcore.release.guarantee import budget_text
from dpcore.release.plan import ReleasePlan
from pipelines.kinds import KINDS
from pipelines.release_folder import ReleaseFolder
from pipelines.terminal_text import print_line

# Beyond, the guarantee hardly hides anything from who knows much already.
LARGE_EPSILON = 10


def print_summary(folder: ReleaseFolder, report: str, account: str | None = None) -> None:
    """Prints what was released: the guarantee, each tree's totals and quantiles, where it lies.

    Args:
        folder: the release.
        report: the path of its page.
        account: what the ledger says of its data set; None without a ledger.
    """
    plan = folder.plan
    print_line(
        f"{plan.name}: {budget_text(plan)} per {plan.unit.name}, "
        f"neighbours {plan.unit.neighbors.value}"
    )
    for line in _budget_lines(plan, account):
        print_line(line)
    for question in plan.questions:
        tree = folder.release.tree(question.name)
        for line in KINDS[question.kind].summary_lines(tree):
            print_line(line)
    print_line()
    print_line(f"release: {folder.path}")
    print_line(f"report:  {report}")


def _budget_lines(plan: ReleasePlan, account: str | None) -> Iterator[str]:
    """What is to be said of the budget."""
    yield account or (
        "no ledger: nothing adds this budget up with those of other releases of the same data"
    )
    stated = None if plan.budget.measure is Measure.RHO else plan.budget.amount
    epsilon = stated if plan.stated is None else plan.stated[0]
    if epsilon is not None and epsilon > LARGE_EPSILON:
        yield (
            f"an epsilon above {LARGE_EPSILON}: one {plan.unit.name} may make an output "
            f"e^{float(epsilon):g} times as likely"
        )
