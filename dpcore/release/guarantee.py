"""The privacy guarantee of a release, in words and numbers, for manifest, report and summary."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dptrees.dpcore import __version__
from dptrees.dpcore.privacy.conversion import zcdp_epsilon
from dptrees.dpcore.privacy.unit import Measure, Neighbors, NullUnits, amount_text
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.runs import counts_new_units, protected_period, run_in_words, run_numbers

# Raised when a version computes floats of the same plan and counts with other bits. Releases
# without it are of versions whose last digits depended on the processor.
ARITHMETIC_VERSION = 1


_ROWS = {
    Neighbors.ADD_REMOVE: "one of them has one row more than the other",
    Neighbors.SUBSTITUTE: "both have as many rows, a public number, and they differ in one",
}
_UNITS = {
    Neighbors.ADD_REMOVE: "one of them has one unit more than the other, with all of its rows",
    Neighbors.SUBSTITUTE: "both have the same units, and the rows of one differ, in number and "
    "values",
}
_UNITS_OF_PERIODS = {
    Neighbors.ADD_REMOVE: "one of them has, in one period, a unit more than the other, with all of "
    "its rows of that period",
    Neighbors.SUBSTITUTE: "both have the same units, and the rows of one differ in one period, in "
    "number and values",
}


def budget_text(plan: ReleasePlan) -> str:
    """The whole budget: ``epsilon = 1``, ``rho = 0.1`` or ``epsilon = 1, delta = 1e-06``."""
    if plan.promised is not None:
        epsilon, delta = map(amount_text, plan.promised)
        return f"epsilon = {epsilon}, delta = {delta}"
    whole = plan.whole_budget
    return f"{whole.measure.value} = {amount_text(whole.amount)}"


def stated_guarantee(plan: ReleasePlan) -> str:
    """Return the whole guarantee in one line: budget, privacy unit, bounds, invariants, relation.

    Wherever a release names its guarantee in one line, it is this one. Less would promise more: a
    budget of each period is not one of all of them, and what is stated exactly is not protected.

    Args:
        plan: of the release.

    Returns:
        as "epsilon = 1 per uid (at most 6 rows of each), neighbors add_remove".
    """
    exact_counts = invariants(plan)
    exact = f", given the exact counts down to {' and '.join(exact_counts)}" if exact_counts else ""
    return (
        f"{budget_text(plan)} per {protected_unit(plan)}{exact}, "
        f"neighbors {plan.unit.neighbors.value}"
    )


def protected_unit(plan: ReleasePlan) -> str:
    """Return what the budget is for: a row, or a unit with its bounds, of each period."""
    unit = plan.unit
    if plan.bounds is not None and plan.bounds.values is None:
        return f"{unit.name} ({plan.bounds.in_words} chosen first)"
    if unit.is_row:
        return unit.name
    run = plan.run
    if run is None or run.max_periods is None:
        period = "" if run is None else " and period"
        return f"{unit.name}{period} ({plan.counted_in_words} of each)"
    periods = f"{run.max_periods} of {run.periods} periods"
    return f"{unit.name} ({plan.counted_in_words} of each a period, in at most {periods})"


def invariants(plan: ReleasePlan) -> tuple[str, ...]:
    """Return the levels down to which counts are stated exactly, each once."""
    declared = [words for each in plan.questions if (words := each.declared_public) is not None]
    return tuple(dict.fromkeys(declared))


def guarantee_in_words(plan: ReleasePlan) -> str:
    """The guarantee as a paragraph for a person.

    Args:
        plan: of the release.
    """
    amount, promised = amount_text(plan.whole_budget.amount), plan.promised
    if promised is not None:
        epsilon, delta = map(amount_text, promised)
        concentrated = "" if _is_mixed(plan) else f"; also rho-zCDP with rho = {amount}"
        law = (
            f"whatever is computed from this release is at most e^{epsilon} times as likely on one "
            f"as on the other, but for a probability of {delta} (approximate differential privacy, "
            f"epsilon = {epsilon}, delta = {delta}{concentrated})"
        )
    elif plan.budget.measure is Measure.EPSILON:
        law = (
            f"whatever is computed from this release is at most e^{amount} times as likely on one "
            f"as on the other (pure differential privacy, epsilon = {amount})"
        )
    else:
        law = (
            f"this release tells them apart no better than zero-concentrated differential privacy "
            f"with rho = {amount} allows"
        )
    neighbors = (_ROWS if plan.unit.is_row else _UNITS)[plan.unit.neighbors]
    of_period = plan.run is not None and plan.run.max_periods is None
    if of_period and not plan.unit.is_row:
        neighbors = _UNITS_OF_PERIODS[plan.unit.neighbors]
    new = [each.name for each in plan.remembering if counts_new_units(each.measured_trees[0])]
    run = run_in_words(plan.run, new)
    sentence = f"{_chosen(plan)}{_selected(plan)}{_bounds(plan)}{run}{_unit(plan)}"
    return (
        f"For any two data sets of which {neighbors}{_agreement(plan)}, {law}. "
        f"{sentence}. Noise is derived from a secret key: whoever "
        "learns the key can remove the noise, so the guarantee holds only while the key stays "
        f"secret.{_counted(plan)}"
    )


def _is_mixed(plan: ReleasePlan) -> bool:
    """Whether only a part of an epsilon and a delta is a rho, so that no rho can be stated."""
    first = plan.selection is not None or plan.bounds is not None
    return first or len(plan.composed) < len(plan.questions)


def _unit(plan: ReleasePlan) -> str:
    """The protected privacy unit, and how much of it counts."""
    unit = plan.unit
    several = "rows" if unit.is_row else "units"
    promised = plan.promised
    if promised is not None and _is_mixed(plan):
        times = (
            f"epsilon times the number of their {several}, and a delta that grows faster than it"
        )
    else:
        times = f"{plan.budget.measure.value if promised else 'the budget'} times "
        times += "" if plan.budget.measure is Measure.EPSILON else "the square of "
        times += f"the number of their {several}"
    if unit.is_row:
        return (
            f"The privacy unit is the row: a person in several rows is protected less, with {times}"
        )
    nulls = "left out" if unit.nulls is NullUnits.DROP else "units of their own"
    run, in_each = plan.run, ""
    of_period = "" if run is None else " in one period"
    if run is not None and run.max_periods is not None:
        of_period, in_each = " in all periods", " of a period"
    as_type = "" if unit.type is None else f", read as {unit.type.value}"
    return (
        f"The privacy unit is {unit.name}{as_type}: all rows of one value{of_period} are protected "
        f"together. Of each a tree counts {_counted_of_each(plan, in_each)}; rows whose "
        f"{unit.name} is null are {nulls}. Who has several values of {unit.name} is protected "
        f"less, with {times}"
    )


def _counted_of_each(plan: ReleasePlan, in_each: str) -> str:
    """How much of a unit is counted, and who chooses it."""
    values = [each for each in plan.questions if each.unit_value is not None]
    chosen = f"{plan.counted_in_words}{in_each}, which a keyed hash of them chooses"
    whole = "put together from all its rows"
    if not values:
        return chosen
    if plan.counts_units:
        keyed = any(each.is_keyed for each in plan.questions)
        return f"{chosen if keyed else plan.counted_in_words + in_each}, {whole}"
    names = ", ".join(each.name for each in values)
    return f"{chosen} (tree {names}: one value, {whole})"


def _counted(plan: ReleasePlan) -> str:
    """Sentence on the ledger that adds the budget to the budgets of other releases."""
    if plan.dataset is None:
        return ""
    return f" A ledger counts its budget with all others of the data set {plan.dataset}."


def _agreement(plan: ReleasePlan) -> str:
    """Further agreement required of two neighboring data sets: the invariants."""
    declared = invariants(plan)
    if not declared:
        return ""
    return (
        f", and which agree on the counts that are declared public (down to the level "
        f"{', '.join(declared)}; this release states them exactly, and what they tell is not "
        "protected: a weaker guarantee than without them)"
    )


def _selected(plan: ReleasePlan) -> str:
    """The part of the budget that the selection of keys spent."""
    if plan.selection is None:
        return ""
    columns = "; ".join(", ".join(each.columns) for each in plan.selection.questions)
    epsilon, delta = (f"{float(each):g}" for each in plan.selection.spending.own)
    return (
        f"Which keys of {columns} there are was released first, for epsilon = {epsilon} and delta "
        f"= {delta} of these; the trees spend the rest. "
    )


def _chosen(plan: ReleasePlan) -> str:
    """The part of the budget that the choice of bounds spent."""
    if plan.bounds is None:
        return ""
    first = plan.bounds.plan.budget
    what = "What is counted" if plan.bounds.of_values else "How much of a unit is counted"
    return (
        f"{what} ({plan.bounds.in_words}) was chosen and released first, for "
        f"{first.measure.value} = {float(first.amount):g} of this, {plan.bounds.chosen_by}; "
        "what follows spends the rest. "
    )


def _bounds(plan: ReleasePlan) -> str:
    """The bounds that values are clamped to before they are summed."""
    bounds = [words for each in plan.questions if (words := each.clamped) is not None]
    return f"Values are clamped before they are summed: {', '.join(bounds)}. " if bounds else ""


def _shared_budget(plan: ReleasePlan) -> dict[str, str]:
    """The budget in numbers; not a rho that only some of the trees keep."""
    if plan.promised is not None and _is_mixed(plan):
        return {}
    return {plan.whole_budget.measure.value: str(plan.whole_budget.amount)}


def guarantee_numbers(plan: ReleasePlan) -> dict[str, object]:
    """Return the guarantee as the manifest states it for programs.

    The relation, the unit and the budget; `LATER_NUMBERS` of a manifest where they apply: "period"
    for a series, whose budget is for a unit's rows of one period, and "invariants", the levels of
    exact counts.
    """
    stated = plan.promised
    return {
        "neighbors": plan.unit.neighbors.value,
        "unit": "row" if plan.unit.is_row else plan.unit.spec()["unit"],
        **({} if plan.dataset is None else {"dataset": plan.dataset}),
        **({} if plan.run is None else {"period": protected_period(plan.run)}),
        **({"invariants": list(exact_counts)} if (exact_counts := invariants(plan)) else {}),
        **_shared_budget(plan),
        **({} if stated is None else {"epsilon": str(stated[0]), "delta": str(stated[1])}),
        **_selection_numbers(plan),
        **_bounds_numbers(plan),
    }


def _selection_numbers(plan: ReleasePlan) -> dict[str, str]:
    if plan.selection is None:
        return {}
    epsilon, delta = plan.selection.spending.own
    return {"selection_epsilon": str(epsilon), "selection_delta": str(delta)}


def _bounds_numbers(plan: ReleasePlan) -> dict[str, str]:
    if plan.bounds is None:
        return {}
    first = plan.bounds.plan.budget
    return {f"bounds_{first.measure.value}": str(first.amount)}


def plan_manifest(plan: ReleasePlan) -> dict[str, object]:
    """The manifest apart from the nonce, the record and the list of parts.

    It holds nothing of the data: no number of rows, no time, no fingerprint.
    """
    return {
        "spec": plan.spec(),
        "dptrees": __version__,
        "arithmetic": ARITHMETIC_VERSION,
        "guarantee": {
            "words": guarantee_in_words(plan),
            **guarantee_numbers(plan),
            "assumes": "the release key stays secret; the operator, the workers and their storage "
            "are trusted; under one folder it speaks of one data set",
        },
        "trees": [question.entry() for question in plan.questions],
        **({} if plan.run is None else {"series": run_numbers(plan.name, plan.run)}),
    }


# Above, an output may be 20,000 times as likely with a unit as without it.
LARGE_EPSILON = 10
# Above, one unit in a thousand may be published whole.
LARGE_DELTA = Fraction(1, 1000)
# At which a rho is converted.
_DELTA = Fraction(1, 10**6)


def weak_guarantees(plan: ReleasePlan, rows: float | None = None) -> Iterator[str]:
    """Return what makes a guarantee weak: an epsilon above 10, a delta above 1e-3 or one over the
    rows.

    Args:
        plan: of the release.
        rows: how many there are, from a public guess or a released total; None where neither is.
    """
    epsilon, delta, of_rho = _stated(plan)
    unit = plan.unit.name
    if epsilon > LARGE_EPSILON:
        stated = f"rho = {float(plan.whole_budget.amount):g} implies " if of_rho else ""
        at = " at delta = 1e-06, which" if of_rho else ""
        yield (
            f"{stated}epsilon = {epsilon:g}{at} is above {LARGE_EPSILON}: one {unit} may make an "
            f"output e^{epsilon:g} times as likely"
        )
    if delta > LARGE_DELTA:
        yield (
            f"delta = {float(delta):g} is above {float(LARGE_DELTA):g}: with this probability the "
            f"epsilon protects no {unit}; take far less than one over the number of them"
        )
    elif rows is not None and rows >= 1 and float(delta) * rows > 1:
        yield (
            f"delta = {float(delta):g} is above one over the number of rows (about {rows:,.0f}): a "
            "release that publishes a random row would keep it; take far less"
        )


def _stated(plan: ReleasePlan) -> tuple[float, Fraction, bool]:
    """Return epsilon and delta, and whether they are converted from a rho."""
    if plan.promised is not None:
        epsilon, delta = plan.promised
        return float(epsilon), delta, False
    whole = plan.whole_budget
    if whole.measure is Measure.EPSILON:
        return float(whole.amount), Fraction(0), False
    return float(f"{zcdp_epsilon(whole.amount, _DELTA):.4g}"), Fraction(0), True
