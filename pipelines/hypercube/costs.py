"""What a box of columns takes of a processor and of memory."""

from __future__ import annotations

from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.pipelines.cluster.costs import KindCosts


def hypercube_costs(question: HypercubeQuestion) -> KindCosts:
    """Return the costs of a box. Without a bound on its counts one worker holds them of all rows,
    and settles them alone."""
    row = 25.0 + 15.0 * len(question.columns)
    if question.plan.state_bytes is None:
        return KindCosts(
            row=row,
            gathered_row=180.0,
            gathered_bytes=45.0,
            most_gathered=2.0 ** question.plan.depths[-1],
        )
    return KindCosts(row=row)
