"""A release in a few lines on the terminal."""

from __future__ import annotations

from dpcore.release.guarantee import budget_text
from pipelines.kinds import KINDS
from pipelines.release_folder import ReleaseFolder
from pipelines.terminal_text import print_line


def print_summary(folder: ReleaseFolder, report: str) -> None:
    """Prints what was released: the guarantee, each tree's totals and quantiles, where it lies.

    Args:
        folder: the release.
        report: the path of its page.
    """
    plan = folder.plan
    print_line(
        f"{plan.name}: {budget_text(plan)} per {plan.unit.name}, "
        f"neighbours {plan.unit.neighbors.value}"
    )
    for question in plan.questions:
        tree = folder.release.tree(question.name)
        for line in KINDS[question.kind].summary_lines(tree):
            print_line(line)
    print_line()
    print_line(f"release: {folder.path}")
    print_line(f"report:  {report}")
