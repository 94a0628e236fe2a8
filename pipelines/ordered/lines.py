"""A tree over an ordered domain on the terminal: its plan, a target, and what was released."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from dpcore.arithmetic.sums import decimal_exponent, power_of_ten
from dpcore.levels.planner import predicted_cdf_rmse, predicted_error
from dpcore.levels.uniform import UniformMechanism
from dpcore.noise.scales import scale_of
from dpcore.ordered.candidates import candidates
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.released import ReleasedCdf
from dpcore.privacy.budget import Measure
from dpcore.privacy.conversion import epsilon_of
from dpcore.privacy.loss import certified_delta
from dpcore.repair.error import CountError, assumed_rows, can_be_simulated, count_error
from dpcore.uniform.entry import counted, estimate_in_words
from dpcore.uniform.objectives import CdfObjective, Objective
from dpcore.uniform.plan import Consistency, TreePlan, moved_counts
from pipelines.answers.figures import quantile_texts, significant
from pipelines.plain.counted import counted_noun
from pipelines.plain.lines import (
    NODES_SHOWN,
    UNMEASURED,
    heading,
    key_number,
    largest,
    times_keys,
    totals,
)
from pipelines.target import Target
from pipelines.terminal_text import escaped
from pipelines.user_error import UserError

# Halvings until the epsilon of a target is known to four digits.
_HALVINGS = 15


def ordered_entry(question: OrderedQuestion[UniformMechanism]) -> dict[str, Any]:
    """The plan of one tree as plain values, beside the published mechanisms; of categories without
    an order, beside those alone whose counts' errors are known."""
    compared = candidates(question.mechanism.plan, question.mechanism.objective)
    if not question.is_ordered:
        compared = tuple(each for each in compared if each.plan.is_efficient)
    return {
        "name": question.name,
        "keys": key_number(question),
        **_described(question.mechanism.plan),
        "predicted": _predicted(question.mechanism.plan, question),
        **_predicted_counts(question),
        "candidates": [
            {
                "label": each.label,
                "estimation": each.plan.estimator.value,
                "estimate": estimate_in_words(each.plan),
                **_described(each.plan),
                "predicted": _predicted(each.plan, question),
            }
            for each in compared
        ],
    }


def _predicted(plan: TreePlan, question: OrderedQuestion[UniformMechanism]) -> dict[str, float]:
    """The error of a CDF point, where there is a CDF, and of what the plan is for where that is
    known: of efficient estimates, and of nodes only in the tree whose levels are weighted."""
    objective = question.mechanism.objective
    predicted = {"cdf_rmse": predicted_cdf_rmse(plan)} if question.is_ordered else {}
    with suppress(ValueError):
        if plan.is_efficient:
            predicted[_error_name(objective)] = predicted_error(plan, objective)
    return predicted


def _predicted_counts(
    question: OrderedQuestion[UniformMechanism],
) -> dict[str, Any]:
    """What the counts will be off by, where that is requested and can be simulated."""
    error = _count_error(question)
    return {} if error is None else {"predicted_counts": asdict(error)}


def _count_error(
    question: OrderedQuestion[UniformMechanism],
) -> CountError | None:
    plan, rows = question.mechanism.plan, question.mechanism.guessed_rows
    for_counts = rows is not None or question.mechanism.for_counts
    if not for_counts or not can_be_simulated(plan):
        return None
    rows, shrunk = (
        rows or assumed_rows(plan.setting),
        question.mechanism.consistency is Consistency.SHRUNK,
    )
    return count_error(plan, question.mechanism.objective, rows, shrunk=shrunk)


def _error_name(objective: Objective) -> str:
    return f"{objective.kind}_rmse" if objective.unit == "rows" else "quantiles_rmse_in_cells"


def _described(plan: TreePlan) -> dict[str, Any]:
    measure = plan.budget.measure.value
    return {
        "mechanism": plan.measured.value,
        "fanouts": list(plan.tree.fanouts),
        "levels": [
            {
                "level": level,
                measure: float(amount),
                "scale": None if law is None else scale_of(law),
            }
            for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True))
        ],
    }


def ordered_lines(
    question: OrderedQuestion[UniformMechanism], entry: Mapping[str, Any]
) -> Iterator[str]:
    """The levels of one tree, and its predicted errors beside those of others."""
    yield from _levels(question)
    yield from _errors(question, entry)
    if counts := entry.get("predicted_counts"):
        typical, least, most = (significant(counts[key]) for key in ("typical", "least", "most"))
        objective = question.mechanism.objective
        rows = "a guess of" if question.mechanism.guessed_rows else "no guess, so as for"
        yield (
            f"  counts, {objective.reads}: {typical} {objective.unit} off by a "
            f"model ({least} to {most} on public histograms; {rows} {counts['rows']:,} rows)"
        )


def _levels(question: OrderedQuestion[UniformMechanism]) -> Iterator[str]:
    plan, measure = question.mechanism.plan, question.mechanism.plan.budget.measure.value
    shape = " x ".join(map(str, plan.tree.fanouts)) or "1"
    yield ""
    of_keys = times_keys(question)
    what = f"cells in a tree of {shape}" if question.is_ordered else "categories without an order"
    yield f"{question.name}: {plan.tree.leaves:,} {what}{of_keys}"
    for level, amount in enumerate(plan.level_amounts):
        law = plan.laws[level]
        noise = f"not measured: {UNMEASURED}"
        if law is not None:
            noise = f"std error {significant(math.sqrt(law.variance))}"
        elif level == 0 and plan.public_total:
            noise = "public: neighbours have the same number of rows"
        ((what, count),) = counted(plan, level).items()
        yield f"  level {level}: {count:>12,} {what}, {measure} {float(amount):.4f}, {noise}"


def _errors(question: OrderedQuestion[UniformMechanism], tree: Mapping[str, Any]) -> Iterator[str]:
    objective = question.mechanism.objective
    name, other = _error_name(objective), objective != CdfObjective()
    if not question.is_ordered:
        yield "  predicted error, root mean square, of the count of a category, in rows:"
        for candidate in tree["candidates"]:
            named = f"{candidate['label']}, {candidate['estimate']}"
            yield f"    {named:<26} {candidate['predicted'][name]:>10.4g}"
        return
    heading = "  predicted errors, root mean square, of a CDF point over all cells, in rows"
    yield f"{heading}{',' if other else ':'}"
    if other:
        yield f"  and of {objective.reads}, in {objective.unit}:"
    for candidate in tree["candidates"]:
        predicted = candidate["predicted"]
        own = significant(predicted[name]) if name in predicted else "-"
        yield (
            f"    {candidate['label'] + ', ' + candidate['estimate']:<26} "
            f"{significant(predicted['cdf_rmse']):>10} "
            f"{own if other else '':>{10 if other else 0}}   {_shape(candidate['fanouts'])}"
        )


def _shape(fanouts: list[int]) -> str:
    """Fan-outs with repetitions as powers: 16^4."""
    runs: list[list[int]] = []
    for fanout in fanouts:
        if runs and runs[-1][0] == fanout:
            runs[-1][1] += 1
        else:
            runs.append([fanout, 1])
    texts = [f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs]
    return " x ".join(texts) or "1"


def ordered_target(target: Target) -> dict[str, Any]:
    """The budget of one tree alone at which what it is for is this far off, with an epsilon that a
    rho keeps beside a delta.

    Raises:
        UserError: the budget is fixed, or there is none.
    """
    if target.section.workload().has_fixed_amounts:
        raise UserError(
            f"--target-error: {target.place}.level_budgets fixes the budget; use equal or optimal"
        )
    question = target.question
    found = target.found(
        question.mechanism.objective.unit if question.mechanism.plan.is_efficient else "rows"
    )
    if target.delta is None or target.measure is not Measure.RHO:
        return found
    epsilon = _least_epsilon(target.planned(target.amount).plan, target.delta)
    return found | {"epsilon": epsilon, "delta": float(target.delta)}


def _least_epsilon(plan: TreePlan, delta: Fraction) -> float:
    """The epsilon, to four digits and certified, that a plan keeps at a delta."""
    # What converting the rho allows is an upper bound; the certificate saves at most a half.
    high, moved = epsilon_of(plan.budget.amount, delta), moved_counts(plan)
    if moved is None:
        return _rounded_up(high)
    low = high / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if certified_delta(moved, middle) > delta:
            low = middle
        else:
            high = middle
    return _rounded_up(high)


def _rounded_up(value: float) -> float:
    """To five digits."""
    last = power_of_ten(decimal_exponent(value) - 4)
    return float(f"{math.ceil(value / last) * last:.5g}")


def ordered_summary(tree: ReleasedCdf) -> Iterator[str]:
    """The counts of the roots with their quantiles, or with the largest categories."""

    def quantiles(label: str | None, blanks: str) -> Iterator[str]:
        for row in tree.quantiles(label):
            value, span = quantile_texts(row)
            yield f"  {blanks}{100 * row['q']:>6g} %  {escaped(value):>10}  [{escaped(span)}]"

    def categories(label: str | None, _: str) -> Iterator[str]:
        return map(largest, tree.top(NODES_SHOWN, tree.height, label))

    yield from heading(tree.question, tree.question.domain.columns)
    below = quantiles if tree.question.is_ordered else categories
    yield from totals(tree, counted_noun(tree.question), below)
