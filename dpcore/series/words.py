"""Statement of the guarantee about the series that a release is a run of."""

from __future__ import annotations

from dptrees.dpcore.questions.question import SeriesRun


def run_in_words(run: SeriesRun | None) -> str:
    """State what one budget covers, and whom it protects how much; nothing about an existing
    release alone.

    Args:
        run: of a series.
    """
    if run is None:
        return ""
    if run.max_periods is not None:
        return (
            f"This is run {run.period} of a series of {run.periods} periods. The data sets are "
            "those of all periods together, and differ in one unit's rows of all periods. "
            f"{counted_in_words(run)} The budget is spent once for the whole series: it bounds "
            "what all its runs reveal together. "
        )
    return (
        f"This is run {run.period} of a series of {run.periods} periods. The data sets are those "
        "of all periods together, and differ in one period alone; a row belongs to the period in "
        "which it arrives. The budget is spent once for the whole series: it bounds what all its "
        "runs tell together. Whoever has rows in k periods is protected as k privacy units are: "
        "with k times epsilon (and a delta that grows faster), or k squared times rho. "
    )


def run_numbers(series: str, run: SeriesRun) -> dict[str, object]:
    """The same for programs: all runs of a series spend the budget of the guarantee together, once.

    Args:
        series: its id, that of the release.
        run: of the series.
    """
    given = {name: value for name, value in run._asdict().items() if value is not None}
    return {"id": series, **given, "unit": protected_period(run)}


def protected_period(run: SeriesRun) -> str:
    """Whether a unit's rows of one period are protected together, or of all, as configurations have
    it."""
    return "per_period" if run.max_periods is None else "per_series"


def counted_in_words(run: SeriesRun) -> str:
    """Sentence on the periods in which a unit is counted."""
    if run.max_periods == run.periods:
        return "A unit is counted in every period."
    several = "period" if run.max_periods == 1 else f"{run.max_periods} periods"
    return f"A unit is counted in the first {several} in which it has rows, and in no later one."
