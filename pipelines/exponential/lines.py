"""Quantiles by the exponential mechanism on the terminal: their plan, and what was released."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from dpcore.exponential.margins import rank_errors, root_mean_square
from dpcore.exponential.question import ExponentialQuestion, choices_of
from dpcore.exponential.released import ReleasedQuantiles
from pipelines.answers.figures import quantile_texts, rank_margin, significant
from pipelines.plain.lines import KEYS_SHOWN, key_number, times_keys
from pipelines.terminal_text import escaped


def exponential_entry(question: ExponentialQuestion) -> dict[str, Any]:
    """The plan of quantiles as plain values: the choices in rising order, and how far ranks are
    off."""
    plan = question.plan
    errors = rank_errors(plan)
    margins = {
        place: margin for place, margin in zip(question.order, question.rank_margins, strict=True)
    }
    return {
        "name": question.name,
        "keys": key_number(question),
        "mechanism": question.kind,
        "levels": [],
        "predicted": {"rank_rmse": root_mean_square(errors)},
        **_interval_entry(question),
        "quantiles": [
            choice
            | {
                "rank_error": errors[place],
                "rank_margin": margins[place]._asdict(),
            }
            for place, choice in enumerate(choices_of(plan))
        ],
        "candidates": [],
    }


def _interval_entry(question: ExponentialQuestion) -> dict[str, Any]:
    """What intervals spend, and how far they reach; nothing without them."""
    if question.interval_reach is None:
        return {}
    reached = dict(zip(map(str, question.quantiles), question.interval_reach, strict=True))
    return {"intervals": {"share": str(question.plan.interval_share), "reach": reached}}


def exponential_lines(question: ExponentialQuestion, entry: Mapping[str, Any]) -> Iterator[str]:
    """What each choice spends, and how far off its rank will be."""
    measure, confidence = question.plan.budget.measure.value, f"{100 * question.confidence:g} %"
    yield ""
    yield (
        f"{question.name}: quantiles of {question.domain.cells:,} cells by the exponential "
        f"mechanism, no CDF{times_keys(question)}"
    )
    for each in entry["quantiles"]:
        margin = rank_margin(**each["rank_margin"])
        yield (
            f"  {100 * each['q']:>6g} %  {measure} {float(Fraction(each[measure])):.4f} among "
            f"{each['among']}: rank off by {significant(each['rank_error'])} rows,"
        )
        yield f"            with {confidence} by at most {margin}"
    yield (
        "  The first number is a standard deviation where rows lie densely: less where cells hold "
        "many"
    )
    yield "  rows each, more where few are spread over many cells. The second holds for any data."
    yield from _interval_lines(question, confidence)


def _interval_lines(question: ExponentialQuestion, confidence: str) -> Iterator[str]:
    if question.interval_reach is None:
        return
    measure, amount = question.plan.budget.measure.value, question.plan.interval_amount
    yield (
        f"  intervals: {100 * float(question.plan.interval_share):g} % of the budget, {measure} "
        f"{float(amount):.4g} each; with {confidence} they"
    )
    yield "  hold the quantile; their ends aim so many rows beside it:"
    for quantile, rows in zip(question.quantiles, question.interval_reach, strict=True):
        yield f"  {100 * quantile:>6g} %  {rows:,}"


def exponential_summary(tree: ReleasedQuantiles) -> Iterator[str]:
    """The quantiles of the first keys."""
    question = tree.question
    yield ""
    what = "ranks are within so many rows" if question.interval_reach is None else "intervals hold"
    yield (
        f"{question.name} ({', '.join(question.columns)}; {what} with "
        f"{100 * question.confidence:g} %)"
    )
    shown = min(KEYS_SHOWN, question.key_count)
    for label in question.labels_between(0, shown):
        name = "" if label is None else f"{escaped(label):<8}"
        for row, margin in zip(tree.quantiles(label), question.rank_margins, strict=True):
            value, span = quantile_texts(row)
            off = f"its rank within {rank_margin(*margin)}"
            if question.interval_reach is not None:
                off = f"[{span}]"
            yield f"  {name}{100 * row['q']:>6g} %  {escaped(value):>10}  {off}"
            name = " " * len(name)
    if question.key_count > shown:
        yield f"  ... and {question.key_count - shown} more keys"
