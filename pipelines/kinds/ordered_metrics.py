"""Metrics of a tree over an ordered domain, and the keys that a mean alone does not have.

One tree answers all metrics. To split its budget between trees of their own would be worse: a
mean alone has half the error at half the budget, but quantiles have double.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from decimal import Decimal

from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, shown

# What a person who chose it chose of whole levels.
WHOLE_LEVEL_KEYS = {"fanouts", "level_budgets", "estimation", "consistency", "widths"}
_NO_COUNTS = "a mean is measured alone (objective: mean), without a tree of counts; leave it out"
# The keys without effect on a mean alone, which has a mechanism of its own.
MEAN_REFUSED = dict.fromkeys(
    (
        *("quantiles", "guess", "widths", "level_weights", "mechanism", "fanouts"),
        *("level_budgets", "estimation", "consistency", "intervals", "optimize_for"),
    ),
    _NO_COUNTS,
)
MEAN = "mean"
# The mechanisms whose tree is measured by whole levels, unless "planned" chooses another.
UNIFORM_LEVELS = ("planned", "tree", "binary", "histogram", "independent")


COUNT = "count"
# What a mean that is measured alone answers too.
_ALONE = (COUNT, "mean", "total")
_OF_COUNTS = ("variance", "std")
_MEDIAN = "median"
WORDS = (*_ALONE, *_OF_COUNTS, _MEDIAN)
PATTERN = r"p\d{1,2}(\.\d{1,3})?"
_ELSEWHERE = {"sum": "total", "average": "mean", "avg": "mean", "stddev": "std", "var": "variance"}
_PERCENT = re.compile(PATTERN)


def read_metrics(value: object) -> tuple[str, ...]:
    """A list of metrics, each once.

    >>> read_metrics(["count", "mean", "median", "p90"])
    ('count', 'mean', 'median', 'p90')
    """
    return rules.each_once(rules.each_by(_metric, rules.several(value)))


def _metric(value: object) -> str:
    if isinstance(value, str) and (value in WORDS or _share(value)):
        return value
    near = _ELSEWHERE.get(str(value)) or next(
        iter(difflib.get_close_matches(str(value), WORDS, n=1)), None
    )
    more = f"; did you mean {near}?" if near else ""
    raise RuleBroken(f"{shown(value)} must be {', '.join(WORDS)} or a percentile like p90{more}")


def _share(metric: str) -> Decimal | None:
    """The part of the rows below a quantile; None of another metric.

    >>> _share("p99.9"), _share("median"), _share("mean")
    (Decimal('0.999'), Decimal('0.5'), None)
    """
    if metric == _MEDIAN:
        return Decimal("0.5")
    return Decimal(metric[1:]) / 100 if _PERCENT.fullmatch(metric) else None


def chosen_by(chosen: tuple[str, ...]) -> dict[str, str | list[Decimal]]:
    """Return the keys of a tree that is best for these metrics.

    Args:
        chosen: of `read_metrics`.

    >>> chosen_by(("mean", "count")), chosen_by(("count",))
    ({'objective': 'mean'}, {})
    >>> chosen_by(("median", "count"))
    {'objective': 'quantiles', 'quantiles': [Decimal('0.5')]}
    >>> chosen_by(("mean", "p90"))
    {'objective': 'cdf', 'quantiles': [Decimal('0.9')]}
    """
    shares = list(dict.fromkeys(share for each in chosen if (share := _share(each)) is not None))
    others = {each for each in chosen if _share(each) is None}
    if not shares:
        alone = "mean" if others <= set(_ALONE) else "cdf"
        return {"objective": alone} if others != {COUNT} else {}
    return {"objective": "quantiles" if others <= {COUNT} else "cdf", "quantiles": shares}


def with_metrics(tree: Mapping[str, object]) -> Mapping[str, object]:
    """Return the section of a tree with the keys that its metrics choose, where it has metrics.

    What breaks a rule is left as it is.
    """
    try:
        return {**chosen_by(read_metrics(tree["metrics"])), **tree} if "metrics" in tree else tree
    except RuleBroken:
        return tree
