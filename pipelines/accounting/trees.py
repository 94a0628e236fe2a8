"""The trees of a plan, as plain values and as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.description.writers import plan_entry, plan_lines
from dptrees.pipelines.kinds import find_kind


def tree_entries(configuration: Configuration, plan: ReleasePlan) -> list[dict[str, Any]]:
    """The plans of all trees as plain values; `why` a mechanism was taken where several were open.

    Args:
        configuration: of the release.
        plan: of it.
    """
    result = []
    for workload, question in zip(configuration.workloads, plan.questions, strict=True):
        why = workload.why(question)
        entry = plan_entry(question, find_kind(question).lines().describe(question))
        result.append(entry if why is None else entry | {"why": why})
    return result


def tree_lines(question: Question, entry: Mapping[str, Any]) -> Iterator[str]:
    """The plan of one tree for a person.

    Args:
        question: of the tree.
        entry: one of `tree_entries`.
    """
    yield from plan_lines(question, find_kind(question).lines().describe(question), entry)
    if "why" in entry:
        yield f"  {entry['why']}"
