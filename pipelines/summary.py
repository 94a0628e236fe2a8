"""A release in a few lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dptrees.dpcore.release.guarantee import stated_guarantee, weak_guarantees
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import full_edge, odd_totals
from dptrees.pipelines.kinds import find_kind
from dptrees.pipelines.terminal_text import print_line

if TYPE_CHECKING:
    from dptrees.pipelines.release_folder import ReleaseFolder

_NO_LEDGER = "no ledger: the total budget of all releases of the same data is not tracked"


# Standard error of a total, in rows, above which few rows and no rows cannot be distinguished.
_LOUD = 100.0


def print_summary(folder: ReleaseFolder, report: str, account: str | None = None) -> None:
    """Prints what was released: the guarantee, each tree's totals and quantiles, where it lies.

    Args:
        folder: the release.
        report: the path of its page.
        account: what the ledger says of its data set; None without a ledger.
    """
    plan = folder.plan
    print_line(f"{plan.name}: {stated_guarantee(plan)}")
    print_line(account or _NO_LEDGER)
    for question in plan.questions:
        tree = folder.release.tree(question.name)
        for line in find_kind(question).lines().summary(tree):
            print_line(line)
    print_line()
    print_line(f"release: {folder.path}")
    print_line(f"report:  {report}")


def total_warnings(folder: ReleaseFolder) -> Iterator[str]:
    """Warnings of trees that may have lost their rows, from the released totals alone: free, as all
    that is computed of a release is.

    Args:
        folder: the release.
    """
    trees = [folder.release.tree(question.name) for question in folder.plan.questions]
    for edge in filter(None, map(full_edge, trees)):
        yield (
            f"warning: most rows of tree {edge.tree} are counted in the end cell {edge.label}, "
            f"which also counts values beyond the bounds; check {edge.bound}"
        )
    totals = [total for tree in trees if (total := tree.rows_in_all()) is not None]
    rows = max((total.rows for total in totals), default=None)
    yield from (f"warning: {each}" for each in weak_guarantees(folder.plan, rows))
    for odd in odd_totals(totals):
        if odd.is_none and odd.tree.std_error > _LOUD:
            yield (
                f"warning: the total of tree {odd.tree.name} is no larger than its noise "
                f"(standard error {_about(odd.tree.std_error)} rows): use a larger budget, or "
                "smaller bounds on the rows of a unit; if rows were dropped, dptrees check shows "
                "why to people with access to the raw data"
            )
            continue
        held = "about 0" if odd.is_none else _about(odd.tree.rows)
        other = "" if odd.other is None else f", tree {odd.other.name} {_about(odd.other.rows)}"
        yield (
            f"warning: tree {odd.tree.name} holds {held} rows{other}, by their noisy totals: "
            "rows may have been dropped (wrong format or bounds?); run dptrees check"
        )


def _about(rows: float) -> str:
    """A number to two digits.

    >>> _about(48_123.4)
    'about 48,000'
    """
    return f"about {float(f'{rows:.2g}'):,.0f}"


def guarantee_warnings(plan: ReleasePlan) -> Iterator[str]:
    """Warnings of a budget that hardly protects anybody, from the plan alone."""
    guesses = [getattr(each, "guessed_rows", None) for each in plan.questions]
    rows = max((float(each) for each in guesses if each is not None), default=None)
    yield from (f"warning: {each}" for each in weak_guarantees(plan, rows))
