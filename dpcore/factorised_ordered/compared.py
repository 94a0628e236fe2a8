"""A strategy past trees beside the best tree of the same budget."""

from __future__ import annotations

from dpcore.factorised.mechanism import FactorisedMechanism
from dpcore.levels.uniform import UniformMechanism
from dpcore.ordered.planner import predicted_cdf_rmse
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.workload import OrderedWorkload
from dpcore.questions.workload import Share, Terms


def tree_alike(
    question: OrderedQuestion[FactorisedMechanism],
) -> OrderedQuestion[UniformMechanism]:
    """The tree that the planner makes of the same domain, keys and budget.

    Args:
        question: that a strategy measures.
    """
    workload = OrderedWorkload(name=question.name, domain=question.domain, keys=question.keys)
    terms = Terms(unit=question.unit, drops_rows=not question.public_total)
    return workload.planned(Share(budget=question.mechanism.plan.budget), terms)


def tree_rmse(tree: OrderedQuestion[UniformMechanism]) -> float:
    """The predicted error of a CDF point of a tree, root mean square over all cells, in rows."""
    return predicted_cdf_rmse(tree.mechanism.plan)
