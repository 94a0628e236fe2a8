"""One row of benchmarks/relative_error.py, and the tables of docs/relative-error.md beside it.

All streams are public and fixed, so that nothing here is a matter of chance: figures are compared
with the page's, to within the last digits that another machine's exponential may change.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import relative_error as benchmark
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.thresholds.plan import ThresholdPlan

PAGE = Path(__file__).parents[2] / "docs" / "relative-error.md"
FIRST = benchmark.WORST[0]
CLOSE = 0.01


def page_line(head: str) -> list[str]:
    """The cells of the page's line that begins so."""
    found = [line for line in PAGE.read_text().splitlines() if line.startswith(head)]
    assert len(found) == 1
    return cells(found[0])


def cells(line: str) -> list[str]:
    """The figures of a line, then the best column and what was measured."""
    end = benchmark.HEAD + 15 * len(benchmark.COLUMNS)
    figures, rest = line[benchmark.HEAD : end].split(), line[end:].strip()
    name = next(name for name in (*benchmark.COLUMNS, "several") if rest.startswith(name))
    return [*figures, name, *rest.removeprefix(name).replace("(", "").replace(")", "").split()]


def is_figure(cell: str) -> bool:
    """Whether a cell holds a number."""
    return cell.replace(".", "", 1).isdigit()


def agree(left: list[str], right: list[str]) -> bool:
    """Whether cells are the same, figures to within `CLOSE`."""
    return len(left) == len(right) and all(
        float(a) == pytest.approx(float(b), rel=CLOSE) if is_figure(a) and is_figure(b) else a == b
        for a, b in zip(left, right, strict=True)
    )


def test_a_row_is_as_the_page_says() -> None:
    line = benchmark.worst_line(*FIRST, releases=benchmark.RELEASES)
    stated = page_line(line[: benchmark.HEAD])
    assert agree(cells(line), stated)
    # It can fail: one figure 3 % off, or another winner.
    assert not agree([f"{float(stated[0]) * 1.03:.4g}", *stated[1:]], stated)
    assert not agree([*stated[:5], "thresholds", *stated[6:]], stated)


def test_thresholds_stay_below_their_bound_unless_they_estimate_otherwise() -> None:
    name, alpha, digits, root_bound, _ = FIRST
    plan, bound = benchmark.threshold_plan(name, benchmark.worst_case(alpha), digits, root_bound)

    def measured(estimator: ThresholdPlan) -> float:
        worst = benchmark.measured_worst(estimator, name, alpha, root_bound, releases=3)
        return float(worst.split()[0])

    assert 0.7 * bound < measured(plan) <= bound
    assert measured(replace(plan, least=plan.least * 3 / 2)) > bound


def test_every_row_is_on_the_page_and_its_winner_is_the_least() -> None:
    for name, alpha, digits, bound, is_measured in benchmark.WORST:
        rows = "2^40" if bound == MAX_COUNT else f"10^{len(str(bound)) - 1}"
        stated = page_line(f"{name}, alpha {alpha:g}, delta 1e-{digits}, M {rows} ")
        check_winner(stated)
        assert (stated[6] == "-") is not is_measured
    for height, alpha, digits, count in benchmark.GUESSED:
        head = f"binary {height}, alpha {alpha:g}, delta 1e-{digits}, N 10^{len(str(count)) - 1} "
        check_winner(page_line(head))


def check_winner(stated: list[str]) -> None:
    """The winner has the least figure, and what was measured is not above its bound."""
    figures = [float(figure) for figure in stated[:5]]
    winners = [name for name, figure in zip(benchmark.COLUMNS, figures, strict=True) if not figure]
    if len(winners) > 1:
        assert stated[5] == "several"
    else:
        assert stated[5] == benchmark.COLUMNS[figures.index(min(figures))]
    if stated[6] != "-":
        assert float(stated[6]) <= figures[4] + 6 * float(stated[7])
