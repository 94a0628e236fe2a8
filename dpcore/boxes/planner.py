"""Choice of a partition's plan: levels, budgets, which nodes are split, how counts are held.

The paper's PrivHP halves a node at a time and splits the k largest nodes of every level. What was
measured (benchmarks.synthetic) supports other defaults: levels some 4 bits apart (2 under
rho), no budget for the root, least squares instead of Algorithm 4, and a node is split where its
estimate exceeds 4 standard errors of a count of its children. With u = log2(epsilon N) bits, N a
public guess of the rows, levels reach u - 1 bits for one column, one level beyond u for two or
three, two for more; budgets fall a little from level to level. Lemma 5 (Holland et al., Appendix
B, corrected at the root, where 1 is taken) minimizes sum_l A_l / sigma_l over sum sigma_l =
epsilon, with A_l = Gamma_{l-1} down to level L_k and k gamma_{l-1} below it: sigma_l is
proportional to sqrt(A_l), rho_l to A_l^(2/3). Measured against exact least squares, these shares
lose to equal ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp2, power
from dptrees.dpcore.arithmetic.sums import binary_exponent
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.plan import Estimation, GrowthRule, Holding, LevelSketches, PartitionPlan
from dptrees.dpcore.boxes.privtree import PrivTreePlan
from dptrees.dpcore.privacy.sensitivity import (
    level_sensitivity,
    noise_law,
    sketch_sensitivity,
)
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from dptrees.dpcore.specification import Refusal


def lemma_5_shares(
    depths: Sequence[int], diameter: Callable[[int], float], most: int, measure: Measure
) -> Floats:
    """(h + 1,) the shares of the levels, of sum 1, root first.

    Args:
        depths: (h + 1,) of the levels, in bits.
        diameter: gamma of the nodes of a depth, gamma of the whole being 1.
        most: k, at most so many nodes of a level are split.
        measure: of the budget.

    Source: Lemma 5 and Equation 23 (corrected).

    >>> lemma_5_shares((0, 1, 2, 3), lambda depth: 2.0**-depth, 2, Measure.EPSILON).round(3)
    array([0.27 , 0.27 , 0.27 , 0.191])
    """
    weights = [1.0]
    for above in depths[:-1]:
        # All nodes above, or the k that were split: down to L_k there are no more than these.
        weights.append(min(1 << above, most) * diameter(above))
    shares = np.sqrt(weights) if measure is Measure.EPSILON else power(np.array(weights), 2 / 3)
    return np.asarray(shares / shares.sum(), np.float64)


def falling_shares(levels: int, falls: float) -> Floats:
    """(levels,) shares of sum 1, each 2^-falls of the one before.

    >>> falling_shares(3, 1.0)
    array([0.57142857, 0.28571429, 0.14285714])
    """
    shares = exp2(-falls * np.arange(levels, dtype=np.float64))
    return np.asarray(shares / shares.sum(), np.float64)


# A node is split where its estimate exceeds so many standard errors of a count of its children.
SPLIT_ERRORS = 4.0
# How a budget can be shared among levels.
SHARES = ("planned", "equal", "lemma_5")


@dataclass(frozen=True, kw_only=True)
class PartitionSetting:
    """The setting that a plan is made for.

    Args:
        bits: of a code, at least 1.
        diameters: gamma of the nodes of each depth 0..bits, that of the whole being 1.
        dimensions: d, of the domain.
        budget: of the whole tree.
        unit: what neighbors differ in.
        public_total: the number of rows is public.
    """

    bits: int
    diameters: Callable[[int], float]
    dimensions: int
    budget: Budget
    unit: PrivacyUnit
    public_total: bool = False


@dataclass(frozen=True, kw_only=True)
class PartitionChoices:
    """The requested choices; None leaves a choice to the planner.

    Args:
        rows: N, a public guess of how many rows there are: it shapes the plan, nothing else.
        rows_at_most: a public bound of how many rows there can be.
        depth: of the finest level, in bits.
        bits_apart: bits between levels.
        most: k, nodes of a level that are split at most.
        parts: a node is split only with 1 / parts of all rows.
        split_errors: a node is split where its estimate exceeds so many standard errors of its
            children's noise; 0: never mind. None, which only the adaptive partition knows: as
            planned.
        shares: of the budget among levels: "planned", "equal" or "lemma_5".
        estimation: of the counts.
        holding: of exact counts.
        memory: of exact counts, in bytes, on one worker; growing takes more where `most` lets it.
        width: w, of sketches; by default as wide as memory allows, of the paper's no wider than
            `quiet_width`.
        hash_rows: j, of sketches; 1 by default.
        sketch: the kind of sketches; count sketches by default. Any of these three needs them.
        root: whether the root is measured; it costs a share. Even shares and `parts` need it.
        decided_apart: whether numbers of their own decide what is split, so that estimates are
            unbiased given the partition; of the adaptive partition, whose default it is.
    """

    rows: int | None = None
    rows_at_most: int | None = None
    depth: int | None = None
    bits_apart: int | None = None
    most: int | None = None
    parts: int | None = None
    split_errors: float | None = SPLIT_ERRORS
    shares: str = "planned"
    estimation: Estimation | None = None
    holding: Holding | None = None
    memory: int | None = None
    width: int | None = None
    hash_rows: int | None = None
    sketch: SketchKind | None = None
    root: bool = False
    decided_apart: bool = False

    def __post_init__(self) -> None:
        if self.shares not in SHARES:
            raise Refusal("shares", f"{self.shares!r} is none of {', '.join(SHARES)}")
        whole = ("rows", "rows_at_most", "depth", "bits_apart", "most", "parts", "memory")
        for name in (*whole, "hash_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise Refusal(name, f"{value} is not at least 1")
        if self.bits_apart is not None and self.bits_apart > 8:
            raise Refusal("bits_apart", f"{self.bits_apart} is above 8, 256 children at once")
        if self.split_errors is not None and self.split_errors < 0:
            raise Refusal("split_errors", f"{self.split_errors} is below 0")

    @property
    def guessed_rows(self) -> int:
        """A public guess of the number of rows."""
        return self.rows or self.rows_at_most or GUESSED_ROWS

    @property
    def sketch_choice(self) -> str | None:
        """A choice that only sketches have, by its name; None where there is none."""
        names = ("width", "hash_rows", "sketch")
        return next((name for name in names if getattr(self, name) is not None), None)

    @classmethod
    def from_mechanism(cls, mechanism: str, **given: Any) -> PartitionChoices:
        """The choices of a mechanism by its name, where nothing else is given.

        "planned" is for counts, by the mechanism expected to be closest. "privhp" is what this
        project makes of PrivHP. "privhp_paper" is what the paper has:
        halvings, Lemma 5, k nodes of each level, Algorithm 4. "pmm" is the same with all nodes.

        Raises:
            Refusal: a choice that is out of range, or that PMM does not have; `decided_apart`,
                which only "planned" and "adaptive" have.

        Source: Holland et al., Algorithms 2 to 4; He, Vershynin, Zhu 2023 (PMM).
        """
        if mechanism == "adaptive":
            return cls(**{"split_errors": None, "decided_apart": True} | given)
        if mechanism == "planned":
            return cls(**{"split_errors": None} | given)
        if "decided_apart" in given:
            raise Refusal("decided_apart", "is a choice of mechanism planned or adaptive alone")
        if mechanism in ("privhp", "privtree"):
            return cls(**given)
        paper: dict[str, Any] = {
            "bits_apart": 1,
            "split_errors": 0.0,
            "shares": "lemma_5",
            "estimation": Estimation.EVEN_SHARES,
            "root": True,
        }
        if mechanism == "pmm":
            for name in ("most", "parts"):
                if name in given:
                    raise Refusal(name, "PMM splits every node; it has no such choice")
            paper["most"] = 2**64
        return cls(**paper | given)


# A public guess of the number of rows, where none is given.
GUESSED_ROWS = 2**20
# Nodes of a level that are split at most, where memory allows.
MOST_SPLIT = 2**15
# Of memory, where no limit is given, in bytes.
DEFAULT_MEMORY = 2**30
# About how many bits lie between the levels.
BITS_APART = {Measure.EPSILON: 4, Measure.RHO: 2}
# Levels beyond the depth at which evenly spread rows vanish in noise, by the number of columns; and
# by how many powers of two the budget falls from one level to the next.
_LEVELS_BEYOND = {1: (0, 0.5), 2: (1, 0.25), 3: (1, 0.25)}
_LEVELS_BEYOND_MANY = (2, 0.25)
# A counter for every node of the last level is held up to this depth.
MOST_DENSE_DEPTH = 22
# What one code takes while it is merged: itself, its count, and both sorted.
CODE_BYTES = 32
# A partition has at most so many nodes; growing takes some 160 bytes for each that is looked at.
MOST_NODES = 2**24
_LEAST_SPLIT = 2**10
_LEAST_WIDTH = 16
# Wider tables, or deeper counters, would be large to hand on in one piece.
_MOST_WIDTH = 2**20
_MOST_COUNTERS_DEPTH = 20


def plan_partition(setting: PartitionSetting, choices: PartitionChoices) -> PartitionPlan:
    """The plan for a setting.

    Raises:
        Refusal: a choice that the domain, or another choice, does not allow; a memory limit below
            the least plan, which the sentence says.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> plan = plan_partition(
    ...     PartitionSetting(bits=24, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...                      budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                      unit=ADD_REMOVE_ROW),
    ...     PartitionChoices(rows=10**6))
    >>> plan.depths, plan.holding.value
    ((0, 4, 8, 12, 16, 20, 24), 'sparse')
    """
    depths = level_depths(setting, choices)
    most = most_split(choices, setting, depths)
    amounts = _amounts(setting, choices, depths, most)
    holding, sketches = _holding(setting, choices, depths, most, amounts)
    return PartitionPlan(
        depths=depths,
        amounts=amounts,
        measure=setting.budget.measure,
        unit=setting.unit,
        public_total=setting.public_total,
        rule=GrowthRule(most=most, parts=choices.parts, errors=choices.split_errors or None),
        estimation=_estimation(setting, choices),
        holding=holding,
        sketches=sketches,
    )


def _estimation(setting: PartitionSetting, choices: PartitionChoices) -> Estimation:
    """Choose the requested estimation; otherwise counts are shrunk where there are several columns:
    along one column small biases of neighboring nodes add up."""
    if choices.estimation is not None:
        return choices.estimation
    return Estimation.LEAST_SQUARES if setting.dimensions == 1 else Estimation.SHRUNK


def plan_privtree(setting: PartitionSetting, choices: PartitionChoices) -> PrivTreePlan:
    """PrivTree for a setting: half the budget for the splits, half for the counts, and a node
    halved along every column at once, as in its paper; down to the cells, or to the requested depth
    for.

    Raises:
        Refusal: a choice that PrivTree does not have.
    """
    plain = PartitionChoices()
    for name in ("most", "parts", "split_errors", "shares", "estimation"):
        if getattr(choices, name) != getattr(plain, name):
            raise Refusal(name, "PrivTree has no such choice")
    refuse_sketches(choices, "PrivTree compares exact counts, which a sketch does not have")
    apart = choices.bits_apart or min(setting.dimensions, 8)
    finest = requested_depth(setting, choices) or min(setting.bits, 40) // apart * apart
    if finest < 1 or finest % apart:
        field = "bits_apart" if choices.depth is None else "depth"
        raise Refusal(field, f"levels {apart} bits apart do not end at a depth of {finest}")
    half = setting.budget.amount / 2
    return PrivTreePlan(
        bits_apart=apart,
        finest=finest,
        split_epsilon=half,
        count_epsilon=setting.budget.amount - half,
        unit=setting.unit,
        holding=exact_holding(choices, finest),
    )


def refuse_sketches(choices: PartitionChoices, why: str) -> None:
    """
    Raises:
        Refusal: sketches are requested.
    """
    if choices.sketch_choice is not None or choices.holding is Holding.SKETCH:
        raise Refusal(choices.sketch_choice or "holding", why)


def exact_holding(choices: PartitionChoices, finest: int) -> Holding:
    """How exact counts of the finest level are held, where none is a sketch.

    Raises:
        Refusal: exact counts may pass a memory limit.
    """
    memory, dense = choices.memory or DEFAULT_MEMORY, 2 * (8 << finest)
    fits = finest <= MOST_DENSE_DEPTH and dense <= memory
    if choices.holding is Holding.DENSE or fits:
        if dense > memory:
            raise Refusal("memory", f"{memory} bytes are below the {dense} that dense counts need")
        return choices.holding or Holding.DENSE
    if choices.memory is not None:
        sparse = CODE_BYTES * (choices.rows_at_most or 2**40)
        if min(sparse, dense) > memory:
            raise Refusal(
                "memory",
                f"{memory} bytes are below the {min(sparse, dense)} that exact counts may need; "
                "rows_at_most, or a smaller depth, needs less",
            )
    return Holding.SPARSE


def useful_depth(setting: PartitionSetting, rows: int) -> int:
    """The depth at which a part would hold as many rows as noise, were rows spread evenly.

    log2(epsilon N), as in the paper's Theorem 1. Gaussian noise of rho counts like Laplace noise of
    epsilon = 2 sqrt(rho), and ``substitute`` halves both, and a unit of c rows takes a c-th.
    """
    amount = float(setting.budget.amount)
    epsilon = amount if setting.budget.measure is Measure.EPSILON else 2 * math.sqrt(amount)
    epsilon /= level_sensitivity(setting.unit, single_node=False)[0]
    useful = max(2.0, epsilon * rows)
    # A power of 2 is one although the epsilon was rounded.
    return binary_exponent(useful - useful * 2.0**-50)


def bits_apart(columns: int, usual: int) -> int:
    """Bits between levels: about the usual, in whole rounds of the columns where there are few.

    >>> [bits_apart(columns, 4) for columns in (1, 2, 3, 5, 9)]
    [4, 4, 3, 5, 4]
    """
    return usual if columns > 8 else columns * max(1, round(usual / columns))


def requested_depth(setting: PartitionSetting, choices: PartitionChoices) -> int | None:
    """The requested depth of the finest level; None: it is left to the planner.

    Raises:
        Refusal: the domain is not so deep.
    """
    if choices.depth is not None and choices.depth > setting.bits:
        raise Refusal("depth", f"{choices.depth} is above {setting.bits}, where parts are one cell")
    return choices.depth


def finest_depth(setting: PartitionSetting, useful: int, apart: int, beyond: int) -> int:
    """Return a depth of whole levels some levels beyond the useful one, or that of all cells."""
    return min(apart * (max(1, round(useful / apart)) + beyond), setting.bits)


def level_depths(setting: PartitionSetting, choices: PartitionChoices) -> tuple[int, ...]:
    """Return the depths of the levels, evenly spaced as far as possible."""
    usual = BITS_APART[setting.budget.measure]
    apart = choices.bits_apart or bits_apart(setting.dimensions, usual)
    finest = requested_depth(setting, choices)
    if finest is None:
        useful = useful_depth(setting, choices.guessed_rows)
        beyond, _ = _LEVELS_BEYOND.get(setting.dimensions, _LEVELS_BEYOND_MANY)
        finest = (
            min(useful, setting.bits)
            if choices.shares == "lemma_5"
            else finest_depth(setting, useful - (setting.dimensions == 1), apart, beyond)
        )
    levels = -(-finest // apart)
    return (0, *(finest * level // levels for level in range(1, levels + 1)))


def most_split(
    choices: PartitionChoices, setting: PartitionSetting, depths: tuple[int, ...]
) -> int:
    """k: as requested, or what suits the memory."""
    cells, memory = 1 << depths[-1], choices.memory or DEFAULT_MEMORY
    if choices.most is None:
        widest = max(below - above for above, below in pairwise(depths))
        fit = MOST_NODES // (len(depths) << widest)
        suits = max(_LEAST_SPLIT, memory >> 12)
        return int(max(1, min(MOST_SPLIT, fit, suits, cells)))
    if choices.most < 2**64 and choices.most > 2**setting.bits:
        raise Refusal("most", f"{choices.most} is above the 2^{setting.bits} cells of the domain")
    most = min(choices.most, cells)
    grown = sum(min(1 << below, most << (below - above)) for above, below in pairwise(depths))
    if grown > MOST_NODES:
        field = "depth" if choices.most == 2**64 else "most"
        raise Refusal(field, f"a partition of up to {grown} nodes is more than {MOST_NODES}")
    return most


def _amounts(
    setting: PartitionSetting,
    choices: PartitionChoices,
    depths: tuple[int, ...],
    most: int,
) -> tuple[Fraction, ...]:
    """Return the budget of each level; 0 for a root that is public or not measured."""
    needed = choices.estimation is Estimation.EVEN_SHARES or choices.parts is not None
    root = (choices.root or needed) and not setting.public_total
    measure = setting.budget.measure
    if choices.shares == "lemma_5":
        shares = lemma_5_shares(depths, setting.diameters, most, measure)
        shares = shares if root else np.asarray(shares[1:] / shares[1:].sum())
    else:
        beyond = _LEVELS_BEYOND.get(setting.dimensions, _LEVELS_BEYOND_MANY)
        falls = 0.0 if choices.shares == "equal" else beyond[1]
        shares = falling_shares(len(depths) - (not root), falls)
    return level_amounts(setting, shares, root=root)


def level_amounts(setting: PartitionSetting, shares: Floats, *, root: bool) -> tuple[Fraction, ...]:
    """Return the budget of each level; 0 for a root that is public or not measured.

    Args:
        setting: with the budget.
        shares: of the measured levels, of sum 1.
        root: whether the root is one of them.

    Raises:
        Refusal: the budget is too small for so many levels.
    """
    amounts = setting.budget.split(shares)
    if min(amounts) <= 0:
        raise Refusal("depth", f"{len(shares) - root} levels are too many for this budget")
    return amounts if root else (Fraction(0), *amounts)


def _holding(
    setting: PartitionSetting,
    choices: PartitionChoices,
    depths: tuple[int, ...],
    most: int,
    amounts: tuple[Fraction, ...],
) -> tuple[Holding, LevelSketches | None]:
    """The best way to hold counts that fits memory: exact ones have no collisions."""
    memory = choices.memory or DEFAULT_MEMORY
    wanted, dense = choices.holding, 8 << depths[-1]
    if choices.sketch_choice is not None:
        if wanted not in (None, Holding.SKETCH):
            raise Refusal(
                choices.sketch_choice, f"goes with sketches, not with {wanted.value} counts"
            )
        wanted = Holding.SKETCH
    if wanted is Holding.DENSE and dense > memory:
        raise Refusal("memory", f"{memory} bytes are below the {dense} that dense counts need")
    if wanted is Holding.DENSE or (
        wanted is None and depths[-1] <= MOST_DENSE_DEPTH and 2 * dense <= memory
    ):
        return Holding.DENSE, None
    rows = choices.rows_at_most
    if rows is None:
        # A limit that is stated must hold whatever the data are; else the guess will do.
        rows = 2**40 if choices.memory else choices.rows or GUESSED_ROWS
    sparse = CODE_BYTES * min(rows, 1 << depths[-1])
    if wanted is Holding.SPARSE or (wanted is None and 2 * sparse <= memory):
        return Holding.SPARSE, None
    try:
        return Holding.SKETCH, _sketches(setting, choices, depths, most, amounts)
    except _TooSmall as refused:
        least = refused.least if wanted is Holding.SKETCH else min(refused.least, 2 * dense)
        raise Refusal("memory", f"{memory} bytes are below the {least} of the least plan") from None


class _TooSmall(ValueError):
    """No sketches fit.

    Args:
        least: the bytes that do.
    """

    def __init__(self, least: int) -> None:
        super().__init__(least)
        self.least = least


def _sketches(
    setting: PartitionSetting,
    choices: PartitionChoices,
    depths: tuple[int, ...],
    most: int,
    amounts: tuple[Fraction, ...],
) -> LevelSketches:
    """Counters for the first levels, and the widest sketches that fit what remains of memory.

    Of the paper counters are for levels of at most k nodes (L_k of Algorithm 2), and sketches are
    no wider than its bound, corrected, has use for (`quiet_width`); as planned here counters are
    for as many levels as fit a quarter of memory, as a counter has no collisions.
    """
    memory = choices.memory or DEFAULT_MEMORY
    counters = _counters(choices, depths, most, memory)
    sketched, above = len(depths) - 1 - counters, 8 << depths[counters]
    kind, rows, width = choices.sketch or SketchKind.COUNT_SKETCH, choices.hash_rows or 1, 0
    if choices.width is None:
        fit = (memory // 2 - above) // (8 * sketched * rows)
        width = min(_MOST_WIDTH, 1 << (fit.bit_length() - 1))
    if choices.width is None and choices.shares == "lemma_5":
        budget = Budget(measure=setting.budget.measure, amount=max(amounts[counters + 1 :]))
        signed = kind is SketchKind.COUNT_SKETCH
        law = noise_law(budget, *sketch_sensitivity(setting.unit, rows, signed=signed))
        width = min(width, quiet_width(choices.guessed_rows, math.sqrt(law.variance)))
    shape = SketchShape(kind=kind, rows=rows, width=choices.width or width)
    needed = 2 * (above + 8 * sketched * shape.cells)
    if needed > memory:
        raise _TooSmall(needed)
    return LevelSketches(shape=shape, counters=counters)


def quiet_width(rows: int, deviation: float) -> int:
    """The first power of two at which collisions are a quarter of the noise at most, at least 16.

    Collisions add rows / width to a count at most in the mean, and noise its deviation; both enter
    the bound of W1 alike, so that a wider sketch of one row gains a fifth of it at most.

    Source: Holland et al., Theorem 3, corrected (`dpcore.papers.holland.wasserstein_bound`).

    >>> quiet_width(10**6, 20.0), quiet_width(100, 1e6)
    (262144, 16)
    """
    least = 4 * rows / deviation if deviation > 0 else float(_MOST_WIDTH)
    return max(_LEAST_WIDTH, 1 << binary_exponent(max(1.0, least)))


def _counters(choices: PartitionChoices, depths: tuple[int, ...], most: int, memory: int) -> int:
    """The last level that has counters.

    Raises:
        _TooSmall: for memory.
    """
    last = len(depths) - 1
    # Half for counts, half for the same packed, as they travel.
    needs = [
        2 * ((8 << depth) + 8 * (last - level) * (choices.hash_rows or 1) * _LEAST_WIDTH)
        for level, depth in enumerate(depths[:-1])
    ]
    if choices.shares == "lemma_5":
        possible = [max(level for level in range(last) if 1 << depths[level] <= most)]
    else:
        large = min(memory // 4, 8 << _MOST_COUNTERS_DEPTH)
        possible = [level for level in range(last) if 8 << depths[level] <= large]
        possible.append(min(range(last), key=needs.__getitem__))
    fitting = [level for level in possible if needs[level] <= memory]
    if not fitting:
        raise _TooSmall(min(needs[level] for level in possible))
    return max(fitting)
