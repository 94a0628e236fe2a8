"""The plan of a whole release: how its budget is shared among its trees, and which noise each gets.

A pure epsilon or a rho is split by weight. Beside a delta there is a choice: trees with Gaussian
noise share a rho, whose composition is certified to keep what the others leave of epsilon and
delta; trees with Laplace noise spend their part of epsilon and no delta; sparse trees spend their
parts of both. The parts add up (basic composition). Laplace noise is the better one where a tree
has few measured levels, Gaussian noise where it has many, and where several trees share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpcore.accounting import calibrated_rho, rho_of
from dpcore.hierarchy_question import HierarchyQuestion
from dpcore.irregular_planner import NodeWeights, predicted_node_rmse
from dpcore.planner import predicted_cdf_rmse, predicted_error
from dpcore.privacy import Budget, Measure
from dpcore.privacy_loss import certified_delta
from dpcore.question import ChunkedQuestion, MovedCounts, OrderedQuestion, Question
from dpcore.release_plan import ReleasePlan, moved_counts_of
from pipelines.configuration_error import ConfigurationError
from pipelines.sparse_tree import SparseTree

if TYPE_CHECKING:
    from pipelines.configuration import Configuration


def plan_release(configuration: Configuration) -> ReleasePlan:
    """The plan of a release.

    Beside a delta, the noise of trees that leave it open is what makes the weighted sum of the
    logarithms of the trees' predicted errors smallest: all Laplace, all Gaussian, or each tree what
    is better for it.

    Raises:
        ConfigurationError: a share of the budget is too small or too large for a tree.
    """
    if configuration.delta is None:
        _check_noise(configuration)
        return _plan(configuration, configuration.budget, frozenset(), None)
    trees = configuration.trees
    chosen = {index: _asked_noise(tree) for index, tree in enumerate(trees)}
    laplace = frozenset(index for index, noise in chosen.items() if noise == "laplace")
    open_ = frozenset(index for index, noise in chosen.items() if noise == "best")
    first = _Composition(configuration=configuration, laplace=laplace)
    if not open_:
        return first.plan
    second = _Composition(configuration=configuration, laplace=laplace | open_)
    better = {index for index in open_ if second.error(index) < first.error(index)}
    mixed = _Composition(configuration=configuration, laplace=laplace | better)
    return min((second, first, mixed), key=lambda each: each.total_error).plan


def _asked_noise(tree: object) -> str:
    """laplace, gaussian, or best where the tree leaves it open; sparse trees have their own."""
    return "own" if isinstance(tree, SparseTree) else str(getattr(tree, "noise", "best"))


def _check_noise(configuration: Configuration) -> None:
    """Refuses noise that the measure of the budget does not have."""
    epsilon = configuration.budget.measure is Measure.EPSILON
    other = "gaussian" if epsilon else "laplace"
    needed = "rho, or epsilon with a delta" if epsilon else "epsilon"
    for index, tree in enumerate(configuration.trees):
        if _asked_noise(tree) == other:
            raise ConfigurationError(
                f"{configuration.source}: trees[{index}].noise: {other} noise needs {needed}"
            )


@dataclass(frozen=True, kw_only=True)
class _Composition:
    """One way to share an epsilon and a delta.

    Args:
        configuration: with a delta.
        laplace: the trees that spend a part of epsilon, with Laplace noise.
    """

    configuration: Configuration
    laplace: frozenset[int]

    @cached_property
    def plan(self) -> ReleasePlan:
        """The release's; without a delta where nothing spends it."""
        configuration = self.configuration
        assert configuration.delta is not None
        if len(self.laplace) == len(configuration.trees):
            return _plan(configuration, configuration.budget, frozenset(), None)
        stated = configuration.budget.amount, configuration.delta
        budget = configuration.budget
        if self._composed:
            budget = Budget(measure=Measure.RHO, amount=self._certified_rho)
        return _plan(configuration, budget, self.laplace, stated)

    def error(self, index: int) -> float:
        """The predicted error of a tree, in what it is planned for."""
        return _predicted(self.plan.questions[index])

    @cached_property
    def total_error(self) -> float:
        """The weighted sum of the logarithms of the trees' errors."""
        return sum(
            float(question.weight) * math.log(max(_predicted(question), 1e-300))
            for question in self.plan.questions
        )

    @property
    def _composed(self) -> list[int]:
        trees = enumerate(self.configuration.trees)
        return [
            index
            for index, tree in trees
            if index not in self.laplace and not isinstance(tree, SparseTree)
        ]

    @cached_property
    def _certified_rho(self) -> Fraction:
        """The largest rho with which the trees that share it keep what the others leave."""
        configuration = self.configuration
        assert configuration.delta is not None
        weights = [tree.weight for tree in configuration.trees]
        sparse = [tree.weight for tree in configuration.trees if isinstance(tree, SparseTree)]
        pure = [weights[index] for index in self.laplace]
        everything = sum(weights, Fraction())
        epsilon = configuration.budget.amount * (1 - sum([*sparse, *pure], Fraction()) / everything)
        delta = configuration.delta * (1 - sum(sparse, Fraction()) / everything)

        def moved(rho: Fraction) -> MovedCounts | None:
            budget = Budget(measure=Measure.RHO, amount=rho)
            made = [
                _question(configuration, index, budget, self.laplace) for index in self._composed
            ]
            return moved_counts_of(each for each in made if isinstance(each, ChunkedQuestion))

        def certify(rho: Fraction) -> float:
            counts = moved(rho)
            assert counts is not None
            return certified_delta(counts, epsilon)

        try:
            converted = rho_of(epsilon, delta)
            if moved(converted) is None:
                return converted
            return calibrated_rho(epsilon, delta, certify)
        except ValueError as error:
            raise ConfigurationError(f"{configuration.source}: privacy.delta: {error}") from None


def _plan(
    configuration: Configuration,
    budget: Budget,
    laplace: frozenset[int],
    stated: tuple[Fraction, Fraction] | None,
) -> ReleasePlan:
    questions = tuple(
        _question(configuration, index, budget, laplace)
        for index in range(len(configuration.trees))
    )
    try:
        return ReleasePlan(
            name=configuration.release,
            neighbors=configuration.neighbors,
            budget=budget,
            questions=questions,
            stated=stated,
        )
    except ValueError as error:
        raise ConfigurationError(f"{configuration.source}: {error}") from None


def _question(
    configuration: Configuration, index: int, budget: Budget, laplace: frozenset[int]
) -> Question:
    """One tree's question with its share: of the budget among those that share it, or of the whole
    epsilon and delta."""
    trees = configuration.trees
    everything = sum((tree.weight for tree in trees), Fraction())
    part = trees[index].weight / everything
    if isinstance(trees[index], SparseTree) or index in laplace:
        return configuration.question(index, configuration.budget.share(part))
    sharing = sum(
        (
            tree.weight
            for other, tree in enumerate(trees)
            if other not in laplace and not isinstance(tree, SparseTree)
        ),
        Fraction(),
    )
    return configuration.question(index, budget.share(trees[index].weight / sharing))


def _predicted(question: Question) -> float:
    """What the tree is planned for, in rows; 1 for a sparse tree, whose thresholds do not depend on
    the others."""
    if isinstance(question, HierarchyQuestion):
        height = question.plan.tree.height
        weights = question.weights or NodeWeights(levels=(1.0,) * (height + 1))
        return predicted_node_rmse(question.plan, weights)
    if isinstance(question, OrderedQuestion):
        if question.plan.is_efficient:
            return predicted_error(question.plan, question.objective)
        return predicted_cdf_rmse(question.plan)
    return 1.0
