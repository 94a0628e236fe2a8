"""The plan of a whole release: how its budget is shared among its trees, and which noise each gets.

A pure epsilon or a rho is split by weight. Beside a delta there is a choice: trees with Gaussian
noise share a rho, whose composition is certified to keep what the others leave of epsilon and
delta; trees with Laplace noise spend their part of epsilon and no delta; sparse trees, and trees
measured by thresholds, spend their parts of both. The parts add up (basic composition). Laplace
noise is the better one where a tree has few measured levels, Gaussian noise where it has many, and
where several trees share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpcore.hierarchy.question import LEAST_SQUARES, HierarchyQuestion
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.irregular.as_measured import MeasuredForest
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.planner import predicted_node_rmse
from dpcore.ordered.planner import predicted_cdf_rmse, predicted_error
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.conversion import calibrated_rho, rho_of
from dpcore.privacy.loss import certified_delta
from dpcore.questions.question import ChunkedQuestion, MovedCounts, Question
from dpcore.release.plan import ReleasePlan, moved_counts_of
from pipelines.hierarchy.section import HierarchyTree
from pipelines.sections.error import ConfigurationError
from pipelines.sparse.section import SparseTree

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
        return _Composition(configuration=configuration).alone(configuration.budget)
    _check_thresholds(configuration)
    own = _own_budgets(configuration)
    noises = {
        index: tree.noise
        for index, tree in enumerate(configuration.trees)
        if index not in own and not isinstance(tree, SparseTree)
    }
    laplace = frozenset(index for index, noise in noises.items() if noise == "laplace")
    open_ = frozenset(index for index, noise in noises.items() if noise == "best")
    first = _Composition(configuration=configuration, own=own, laplace=laplace)
    if open_:
        second = replace(first, laplace=laplace | open_)
        better = {index for index in open_ if second.error(index) < first.error(index)}
        mixed = replace(first, laplace=laplace | better)
        first = min((second, first, mixed), key=lambda each: each.total_error)
    return _with_thresholds(first).plan


def _own_budgets(configuration: Configuration) -> frozenset[int]:
    """The trees that spend an epsilon and a delta of their own, whatever the others do."""
    return frozenset(
        index
        for index, tree in enumerate(configuration.trees)
        if isinstance(tree, SparseTree)
        or (isinstance(tree, HierarchyTree) and tree.mechanism == "thresholds")
    )


def _with_thresholds(chosen: _Composition) -> _Composition:
    """The composition in which trees whose errors are relative to counts are measured by thresholds
    where that is predicted to be better."""
    configuration = chosen.configuration
    for index, tree in enumerate(configuration.trees):
        open_ = (
            isinstance(tree, HierarchyTree)
            and tree.objective == "relative"
            and tree.mechanism == "planned"
            and tree.measure is None
            and tree.public_level is None
            and tree.level_budgets is None
            and tree.estimation is None
            and tree.noise == "best"
        )
        if not open_:
            continue
        other = replace(chosen, own=chosen.own | {index}, laplace=chosen.laplace - {index})
        try:
            if other.total_error < chosen.total_error:
                chosen = other
        except ConfigurationError:  # the tree is too large for thresholds
            continue
    return chosen


def _check_noise(configuration: Configuration) -> None:
    """Refuses noise that the measure of the budget does not have."""
    epsilon = configuration.budget.measure is Measure.EPSILON
    other = "gaussian" if epsilon else "laplace"
    needed = "rho, or epsilon with a delta" if epsilon else "epsilon"
    for index, tree in enumerate(configuration.trees):
        if not isinstance(tree, SparseTree) and tree.noise == other:
            raise ConfigurationError(
                f"{configuration.source}: trees[{index}].noise: {other} noise needs {needed}"
            )


def _check_thresholds(configuration: Configuration) -> None:
    """Refuses a choice of noise where thresholds are asked for, whose noise is bounded."""
    for index, tree in enumerate(configuration.trees):
        if not isinstance(tree, HierarchyTree) or tree.mechanism != "thresholds":
            continue
        if tree.noise != "best":
            raise ConfigurationError(
                f"{configuration.source}: trees[{index}].noise: does not go with the mechanism "
                "thresholds, whose noise is truncated Laplace noise"
            )


@dataclass(frozen=True, kw_only=True)
class _Composition:
    """One way to share an epsilon and a delta, or a budget without a delta.

    Args:
        configuration: of the release.
        own: the trees that spend a part of epsilon and of delta by themselves.
        laplace: the trees that spend a part of epsilon, with Laplace noise.
    """

    configuration: Configuration
    own: frozenset[int] = frozenset()
    laplace: frozenset[int] = frozenset()

    @cached_property
    def plan(self) -> ReleasePlan:
        """The release's; without a delta where nothing spends it."""
        configuration = self.configuration
        assert configuration.delta is not None
        if len(self.laplace) == len(configuration.trees):
            return replace(self, laplace=frozenset()).alone(configuration.budget)
        budget = configuration.budget
        if self._composed:
            budget = Budget(measure=Measure.RHO, amount=self._certified_rho)
        return self.alone(budget, stated=(configuration.budget.amount, configuration.delta))

    def alone(self, budget: Budget, stated: tuple[Fraction, Fraction] | None = None) -> ReleasePlan:
        """The plan at a budget of the trees that share one.

        Raises:
            ConfigurationError: a share is too small or too large for a tree.
        """
        configuration = self.configuration
        questions = tuple(
            self._question(index, budget) for index in range(len(configuration.trees))
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
        """The trees that share a budget."""
        apart = self.own | self.laplace
        return [each for each in range(len(self.configuration.trees)) if each not in apart]

    def _part(self, indices: Iterable[int]) -> Fraction:
        """The part of the weights of all trees that some have."""
        weights = [tree.weight for tree in self.configuration.trees]
        return sum((weights[index] for index in indices), Fraction()) / sum(weights, Fraction())

    @cached_property
    def _certified_rho(self) -> Fraction:
        """The largest rho with which the trees that share it keep what the others leave."""
        configuration = self.configuration
        assert configuration.delta is not None
        epsilon = configuration.budget.amount * (1 - self._part(self.own | self.laplace))
        delta = configuration.delta * (1 - self._part(self.own))

        def moved(rho: Fraction) -> MovedCounts | None:
            budget = Budget(measure=Measure.RHO, amount=rho)
            made = (self._question(index, budget) for index in self._composed)
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

    def _question(self, index: int, budget: Budget) -> Question:
        """One tree's question with its share: of the budget among those that share it, or of the
        whole epsilon and delta."""
        configuration = self.configuration
        if index in self.own or index in self.laplace:
            share = configuration.budget.share(self._part([index]))
        else:
            share = budget.share(self._part([index]) / self._part(self._composed))
        return configuration.question(index, share, own=index in self.own)


def _predicted(question: Question) -> float:
    """What the tree is planned for, in its unit; 1 for a sparse tree, whose thresholds do not
    depend on the others."""
    if isinstance(question, HierarchyQuestion):
        return predicted_hierarchy_error(question)
    if isinstance(question, ThresholdQuestion):
        return predicted_threshold_error(question)
    if isinstance(question, OrderedQuestion):
        if question.plan.is_efficient:
            return predicted_error(question.plan, question.objective)
        return predicted_cdf_rmse(question.plan)
    return 1.0


def predicted_hierarchy_error(question: HierarchyQuestion) -> float:
    """What a hierarchy is planned for: the weighted root mean square error in rows, or the
    objective of errors relative to counts."""
    if question.objective is not None:
        objective = question.objective
        least_squares = question.estimation == LEAST_SQUARES
        of = objective.of_estimates if least_squares else objective.of_measurements
        return of(question.plan)
    plan, forest = question.plan, question.forest
    weights = question.weights or NodeWeights(levels=(1.0,) * (plan.tree.height + 1))
    if not isinstance(forest, MeasuredForest):
        return predicted_node_rmse(plan, weights)
    if plan.tree.height == 0:
        return math.sqrt(forest.node_variances[0][0])
    above, leaves = weights.on_nodes(plan.tree)
    parts = zip((*above, leaves), forest.node_variances, strict=True)
    return math.sqrt(sum(float(own @ each) for own, each in parts) / weights.total)


def predicted_threshold_error(question: ThresholdQuestion) -> float:
    """The bound of the objective of a hierarchy that is measured by thresholds."""
    plan = question.plan
    return question.objective.of_thresholds(plan.errors, plan.tree.height)
