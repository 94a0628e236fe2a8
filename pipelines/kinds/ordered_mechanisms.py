"""The mechanisms and metrics of a tree over an ordered domain, by their names in a configuration.

One tree answers all metrics. To split its budget between trees of their own would be worse: a
mean alone has half the error at half the budget, but quantiles have double. A new mechanism is a
package of dpcore with a candidate, an entry here, and a description in `pipelines.show`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.planner import AdaptiveTree
from dptrees.dpcore.exponential.question import ExponentialWorkload
from dptrees.dpcore.factorised.mechanism import FactorizedMechanism, WeightedSums
from dptrees.dpcore.levels.planner import Candidate, WholeLevels
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.numbers import MeanWorkload
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.rows.keys import Keys
from dptrees.dpcore.uniform.objectives import Objective, QuantileObjective
from dptrees.dpcore.uniform.plan import Consistency, Estimator
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, shown


class ReadAs(Enum):
    """Which of the two numbers of a node most readers will take, or that they take none."""

    COUNTS = "counts"  # nonnegative integers that add up
    ESTIMATES = "estimates"  # unbiased, with intervals
    QUANTILES = "quantiles"  # neither: nothing but the quantiles


@dataclass(frozen=True, kw_only=True)
class OrderedChoices:
    """What a section requests of a tree over an ordered domain, whatever its mechanism.

    Attributes:
        read_as: what the plan is best for; None: what is best for the mechanism.
        guessed_rows: a public guess of the rows of a tree (of each key), or None.
        interval_share: of the budget, where intervals are paid for; else 0.
        chosen: the keys of the section that are in it.
    """

    name: str
    domain: OrderedDomain
    keys: Keys | None
    weight: Fraction
    noise: Noise
    objective: Objective
    quantiles: tuple[float, ...]
    fanouts: tuple[int, ...] | None
    level_budgets: Literal["equal", "optimal"] | tuple[Fraction, ...] | None
    estimator: Estimator
    consistency: Consistency
    read_as: ReadAs | None
    guessed_rows: Fraction | None
    interval_share: Fraction
    chosen: frozenset[str]

    @property
    def reads_quantiles(self) -> bool:
        """Whether the tree is for quantiles, and nothing says which of its numbers are read."""
        return self.objective.kind == "quantiles" and self.read_as is None

    @property
    def guesses_values(self) -> bool:
        """Whether it is guessed where quantiles lie, and not only how many rows there are."""
        return isinstance(self.objective, QuantileObjective) and bool(self.objective.guesses)


def whole_levels(plan: str, section: OrderedChoices) -> OrderedWorkload[UniformMechanism]:
    """Return the workload of a tree whose mechanism measures whole levels."""
    return _measured_by(
        section,
        WholeLevels(
            objective=section.objective,
            plan=plan,
            fanouts=section.fanouts,
            level_budgets=section.level_budgets,
            estimator=section.estimator,
            consistency=section.consistency,
            for_counts=section.read_as is ReadAs.COUNTS,
            guessed_rows=_rows_for_counts(section),
        ),
    )


def _measured_by(section: OrderedChoices, candidate: Candidate[Any]) -> OrderedWorkload[Any]:
    return OrderedWorkload(
        name=section.name,
        domain=section.domain,
        keys=section.keys,
        weight=section.weight,
        noise=section.noise,
        quantiles=section.quantiles,
        candidate=candidate,
    )


def _rows_for_counts(section: OrderedChoices) -> int | None:
    """The guessed rows, unless they only say how far apart quantiles lie."""
    if section.guessed_rows is None or (section.guesses_values and section.read_as is None):
        return None
    return max(1, round(section.guessed_rows))


def exponential_quantiles(section: OrderedChoices) -> ExponentialWorkload:
    """Return the workload of quantiles alone, chosen one after the other."""
    return ExponentialWorkload(
        name=section.name,
        domain=section.domain,
        keys=section.keys,
        weight=section.weight,
        quantiles=section.quantiles,
        interval_share=section.interval_share,
    )


def adaptive(section: OrderedChoices) -> OrderedWorkload[AdaptiveMechanism]:
    """Return the workload of a tree that is divided only where rows are."""
    guess = section.guessed_rows
    return _measured_by(
        section,
        AdaptiveTree(
            counts=section.read_as is ReadAs.COUNTS,
            guessed_rows=None if guess is None else float(guess),
            fanouts=section.fanouts,
            objective=section.objective,
        ),
    )


def factorised(section: OrderedChoices) -> OrderedWorkload[FactorizedMechanism]:
    """Return the workload of a strategy past trees: weighted sums of cells."""
    return _measured_by(section, WeightedSums(objective=section.objective))


# What a person who chose it chose of whole levels.
WHOLE_LEVEL_KEYS = {"fanouts", "level_budgets", "estimation", "consistency", "widths"}


def planned(section: OrderedChoices) -> Workload[Any]:
    """Return the workload of what is closest: without a choice in the section an adaptive tree for
    counts, or under rho a strategy, where these can be had."""
    whole_count = whole_levels("planned", section)
    is_cdf = section.domain.is_ordered and section.objective.kind in ("cdf", "ranges", "quantiles")
    if section.guesses_values or not is_cdf or section.chosen & WHOLE_LEVEL_KEYS:
        return whole_count
    guessed = section.guessed_rows is not None
    if section.read_as is ReadAs.QUANTILES or (guessed and section.reads_quantiles):
        return _chosen_quantiles(section)
    if section.read_as is not ReadAs.ESTIMATES:
        counts = replace(section, read_as=ReadAs.COUNTS)
        return _choice(
            section,
            whole_count,
            for_counts=True,
            strategy=factorised(section),
            adaptive=adaptive(counts),
        )
    if guessed:
        rows = section.guessed_rows
        return _choice(section, whole_count, adaptive=adaptive(section), guessed_rows=rows)
    if section.noise is Noise.LAPLACE:
        return whole_count
    return _choice(section, whole_count, strategy=factorised(section))


def _chosen_quantiles(section: OrderedChoices) -> OrderedChoice:
    """Return the workload of quantiles, by the exponential mechanism or read off counts."""
    few = section.noise is Noise.BEST
    counts = replace(section, read_as=ReadAs.COUNTS)
    return _choice(
        section,
        whole_levels("planned", counts),
        for_counts=True,
        strategy=factorised(section),
        adaptive=adaptive(counts),
        exponential=exponential_quantiles(section) if few else None,
        quantiles_alone=section.read_as is ReadAs.QUANTILES,
        guessed_rows=section.guessed_rows,
    )


def _choice(
    section: OrderedChoices, whole: OrderedWorkload[UniformMechanism], **others: Any
) -> OrderedChoice:
    return OrderedChoice(
        name=section.name,
        keys=section.keys,
        weight=section.weight,
        noise=section.noise,
        whole=whole,
        **others,
    )


class MechanismSection(NamedTuple):
    """A mechanism of a tree over an ordered domain.

    Attributes:
        workload: makes the workload of the tree.
        refused: the keys of a section that have no effect, and why.
        allowed: values of these keys that are accepted all the same.
    """

    workload: Callable[[OrderedChoices], Workload[Any]]
    refused: Mapping[str, str] = {}
    allowed: Mapping[str, tuple[object, ...]] = {}


def mean_alone(section: OrderedChoices) -> MeanWorkload:
    """Return the workload of a mean that is measured alone, without a tree of counts."""
    return MeanWorkload(
        name=section.name,
        domain=section.domain,
        keys=section.keys,
        weight=section.weight,
        noise=section.noise,
    )


_NO_COUNTS = "a mean is measured alone (objective: mean), without a tree of counts; leave it out"
# The objectives that have a mechanism of their own, whatever `mechanism` says.
OWN_OBJECTIVES: Mapping[str, MechanismSection] = {
    "mean": MechanismSection(
        mean_alone,
        refused=dict.fromkeys(
            (
                *("quantiles", "guess", "widths", "level_weights", "mechanism", "fanouts"),
                *("level_budgets", "estimation", "consistency", "intervals", "optimize_for"),
            ),
            _NO_COUNTS,
        ),
        allowed={"mechanism": ("planned",)},
    )
}

_OF_PAPERS = ("tree", "binary", "histogram", "independent")
UNIFORM_LEVELS = ("planned", *_OF_PAPERS)

_OWN = "the mechanism adaptive has its own"
_NO_TREE = "the exponential mechanism has no tree of counts, whose levels would be measured"
_QUANTILES_ALONE = "the exponential mechanism releases quantiles alone, no CDF and no counts"
_NO_LEVELS = "is for trees; the mechanism factorised measures no levels"
_OF_LEVELS = ("level_budgets", "estimation", "consistency")

_FREE = {"intervals": "goes with the mechanism exponential; others have intervals without a share"}

MECHANISMS: Mapping[str, MechanismSection] = {
    "planned": MechanismSection(planned, refused=_FREE),
    **{name: MechanismSection(partial(whole_levels, name), refused=_FREE) for name in _OF_PAPERS},
    "adaptive": MechanismSection(
        adaptive,
        refused={
            "objective": "the mechanism adaptive has one plan for CDF, ranges and quantiles",
            **dict.fromkeys(_OF_LEVELS, _OWN),
            "consistency": "the mechanism adaptive has top_down alone",
            **_FREE,
        },
        allowed={
            "objective": ("cdf", "ranges", "quantiles"),
            "consistency": (Consistency.TOP_DOWN.value,),
        },
    ),
    "exponential": MechanismSection(
        exponential_quantiles,
        refused={
            **dict.fromkeys(("fanouts", *_OF_LEVELS), _NO_TREE),
            **dict.fromkeys(("objective", "optimize_for"), _QUANTILES_ALONE),
            "guess": "the exponential mechanism is planned without one",
            "noise": "the exponential mechanism adds none",
        },
        allowed={"objective": ("quantiles",), "noise": ("best",)},
    ),
    "factorised": MechanismSection(
        factorised,
        refused={
            "objective": "the mechanism factorised is planned for CDF, quantiles and ranges alone",
            **dict.fromkeys(("fanouts", "level_weights", *_OF_LEVELS), _NO_LEVELS),
            "guess": "the mechanism factorised is planned for data that may lie anywhere",
            "optimize_for": "the mechanism factorised has one plan for counts and estimates",
            **_FREE,
        },
        allowed={"objective": ("cdf", "quantiles", "ranges")},
    ),
}


def refused_choice(mechanism: str, chosen: Mapping[str, object]) -> tuple[str, str] | None:
    """The first choice that a mechanism does not have, and why; None where there is none.

    Args:
        mechanism: of the section.
        chosen: its keys that are in it, with their values.
    """
    own = MECHANISMS[mechanism]
    for key, reason in own.refused.items():
        if key in chosen and chosen[key] not in own.allowed.get(key, ()):
            return key, reason
    return None


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
