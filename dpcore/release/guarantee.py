"""What a release guarantees, in words and numbers, for its manifest, report and summary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from dpcore import __version__
from dpcore.hierarchy.question import HierarchyQuestion
from dpcore.hierarchy.threshold_question import ThresholdQuestion
from dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Measure, Neighbors
from dpcore.questions.question import ChunkedQuestion, Question
from dpcore.release.plan import ReleasePlan
from dpcore.sparse.question import SparseQuestion
from dpcore.uniform.plan import Estimator, Measured, TreePlan

# The entry of a manifest that tells whether the others are as they were written.
CHECKSUM = "checksum"

_NEIGHBORS = {
    Neighbors.ADD_REMOVE: "one of them has one row more than the other",
    Neighbors.SUBSTITUTE: "both have as many rows, a public number, and they differ in one",
}


def budget_text(plan: ReleasePlan) -> str:
    """The whole budget: ``epsilon = 1``, ``rho = 0.1`` or ``epsilon = 1, delta = 1e-06``."""
    if plan.stated is not None:
        epsilon, delta = (f"{float(each):g}" for each in plan.stated)
        return f"epsilon = {epsilon}, delta = {delta}"
    return f"{plan.budget.measure.value} = {float(plan.budget.amount):g}"


def guarantee_in_words(plan: ReleasePlan) -> str:
    """The guarantee as a paragraph for a person.

    Args:
        plan: of the release.
    """
    amount, composed = f"{float(plan.budget.amount):g}", len(plan.composed)
    if plan.stated is not None:
        epsilon, delta = (f"{float(each):g}" for each in plan.stated)
        concentrated = f"; also rho-zCDP with rho = {amount}"
        if composed < len(plan.questions):
            concentrated = ""
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
    if plan.stated is not None and composed < len(plan.questions):
        times = "epsilon times the number of their rows, and a delta that grows faster than it"
    else:
        times = f"{plan.budget.measure.value if plan.stated else 'the budget'} times "
        times += "" if plan.budget.measure is Measure.EPSILON else "the square of "
        times += "the number of their rows"
    return (
        f"For any two data sets of which {_NEIGHBORS[plan.neighbors]}{_agreement(plan)}, {law}. "
        f"{_bounds(plan)}The privacy unit is the row: a person in several rows is protected less, "
        f"with {times}. Noise is derived from a secret key: whoever learns "
        "the key can remove the noise, so the guarantee holds only while the key stays secret."
    )


def _agreement(plan: ReleasePlan) -> str:
    """What else two data sets must share to be protected from each other: the invariants."""
    declared = [
        f"{question.domain.tree.level_names[level]} of {question.name}"
        for question in plan.questions
        if isinstance(question, HierarchyQuestion)
        and (level := question.plan.public_level) is not None
        and (level > 0 or question.domain.drops_rows)
    ]
    if not declared:
        return ""
    return (
        f", and which agree on the counts that are declared public (down to the level "
        f"{', '.join(declared)}; this release states them exactly, and what they tell is not "
        "protected: a weaker guarantee than without them)"
    )


def _bounds(plan: ReleasePlan) -> str:
    """The bounds that values are clamped to before they are summed."""
    bounds = [
        f"{question.measure.column} of {question.name} into [{question.measure.lower}, "
        f"{question.measure.upper}]"
        for question in plan.questions
        if isinstance(question, HierarchyQuestion) and question.measure is not None
    ]
    return f"Values are clamped before they are summed: {', '.join(bounds)}. " if bounds else ""


def scale_of(law: NoiseLaw) -> dict[str, str]:
    """The exact parameter of a law of noise."""
    if isinstance(law, DiscreteLaplace):
        return {"law": "discrete Laplace", "scale": str(law.scale)}
    if isinstance(law, DiscreteGaussian):
        return {"law": "discrete Gaussian", "sigma_squared": str(law.sigma_squared)}
    raise TypeError(f"law: {type(law).__name__} gives no guarantee")


def counted(plan: TreePlan, level: int) -> dict[str, int]:
    """How many counts of a level may get noise: of its nodes, or of prefixes."""
    size = plan.tree.level_sizes[level]
    if plan.measured is Measured.PREFIXES and level == plan.tree.height:
        return {"prefixes": size - plan.public_total}
    return {"nodes": size}


def levels_of(plan: TreePlan) -> list[dict[str, object]]:
    """What each level of a tree spends and the noise it gets."""
    measure = plan.budget.measure.value
    levels: list[dict[str, object]] = []
    for level, (amount, law) in enumerate(zip(plan.level_amounts, plan.laws, strict=True)):
        known = "exact: the number of rows is public" if plan.public_total else "not measured"
        entry: dict[str, object] = {"level": level, **counted(plan, level)}
        if law is None:
            entry |= {measure: "0", "noise": known if level == 0 else "not measured"}
        else:
            entry |= {measure: str(amount)} | {"noise": scale_of(law)}
        levels.append(entry)
    return levels


def hierarchy_levels_of(question: HierarchyQuestion) -> list[dict[str, object]]:
    """What each level of a hierarchy spends, and the noise of its nodes.

    A node with a single child has its child's count, and the child is measured with the budget of
    both: ``chain`` says how many nodes above share a node's measurement.
    """
    plan, universe = question.plan, question.domain.tree
    levels: list[dict[str, object]] = []
    for level, name in enumerate(universe.level_names):
        noise: list[dict[str, object]] = []
        for chain in plan.classes(level):
            law = plan.law(level, chain)
            if law is not None:
                noise.append({"chain": chain, **scale_of(law)})
            elif plan.is_public(level, chain):
                noise.append({"chain": chain, "law": "none: public and exact"})
        levels.append(
            {
                "level": level,
                "name": name,
                "nodes": universe.level_sizes[level],
                plan.budget.measure.value: str(plan.level_amounts[level]),
                "noise": noise or "not measured",
            }
        )
    return levels


ESTIMATES = {
    Estimator.NONE: "as published",
    Estimator.BELOW: "from below",
    Estimator.ABOVE: "from above",
    Estimator.REFINED: "refined",
    Estimator.FULL: "efficient",
}


def estimate_in_words(plan: TreePlan) -> str:
    """Which estimate a plan names, for a person."""
    independent = plan.measured is Measured.PREFIXES
    return ESTIMATES[Estimator.NONE if independent else plan.estimator]


def policies_of(question: ChunkedQuestion) -> dict[str, object]:
    """What becomes of values that a tree's domain, keys or measure do not list."""
    kept = ("outside", "missing", "unknown")
    spec, columns = question.domain.spec(), ", ".join(question.domain.columns)
    policies: dict[str, dict[str, object]] = {
        columns: {name: spec[name] for name in kept if name in spec}
    }
    if question.keys is not None:
        policies.setdefault(question.keys.column, {})["unknown key"] = question.keys.unknown
    if isinstance(question, HierarchyQuestion) and question.measure is not None:
        bounds = question.measure
        policies.setdefault(bounds.column, {}).update(
            bounds=[bounds.lower, bounds.upper], outside="clamp", missing=bounds.missing
        )
    return dict(policies)


def _tree_entry(question: Question) -> dict[str, object]:
    """What the manifest says of one tree."""
    entry: dict[str, object] = {"name": question.name}
    if isinstance(question, SparseQuestion):
        return entry | _sparse_entry(question)
    assert isinstance(question, ChunkedQuestion)
    if question.budget is not None:
        entry[question.budget.measure.value] = str(question.budget.amount)
    if isinstance(question, OrderedQuestion):
        entry |= {
            "mechanism": question.plan.measured.value,
            "estimation": question.plan.estimator.value,
            "consistency": question.consistency.value,
            "levels": levels_of(question.plan),
        }
    elif isinstance(question, HierarchyQuestion):
        entry |= {
            "mechanism": "tree",
            "estimation": question.estimation,
            "consistency": "top_down",
            "levels": hierarchy_levels_of(question),
        }
    elif isinstance(question, ThresholdQuestion):
        plan = question.plan.thresholds
        entry |= {
            "epsilon": str(plan.epsilon),
            "delta": str(plan.delta),
            "mechanism": "thresholds",
            "consistency": "top_down",
            "rounds": [each.spec() for each in plan.rounds],
        }
    return entry | {
        "policies": policies_of(question),
        "interval_widths": question.widths.spec(),
    }


def _sparse_entry(question: SparseQuestion) -> dict[str, object]:
    """Of a tree whose heavy nodes are found: each level's noise and threshold, and the pruning."""
    epsilon, delta = question.approximate
    return {
        "epsilon": str(epsilon),
        "delta": str(delta),
        "mechanism": "threshold",
        "levels": question.plan.spec()["levels"],
        "pruning": {
            "rule": question.pruning.rule,
            "rows": question.pruning.rows,
            "words": question.pruning.sentence(question.confidence),
        },
        "policies": {
            ", ".join(question.columns): {
                **question.domain.policies,
                "unknown": "counted above, and released if it passes its threshold",
            }
        },
    }


def _shared_budget(plan: ReleasePlan) -> dict[str, str]:
    """The budget in numbers; not a rho that only some of the trees keep."""
    if plan.stated is not None and len(plan.composed) < len(plan.questions):
        return {}
    return {plan.budget.measure.value: str(plan.budget.amount)}


def guarantee_numbers(plan: ReleasePlan) -> dict[str, str]:
    """The guarantee as the manifest states it for programs: relation, unit and budget."""
    stated = plan.stated
    return {
        "neighbors": plan.neighbors.value,
        "unit": "row",
        **_shared_budget(plan),
        **({} if stated is None else {"epsilon": str(stated[0]), "delta": str(stated[1])}),
    }


def manifest_of(plan: ReleasePlan) -> dict[str, object]:
    """What the manifest says beside the nonce, the record and the list of parts.

    It holds nothing of the data: no number of rows, no time, no fingerprint.
    """
    return {
        "spec": plan.spec(),
        "dptrees": __version__,
        "guarantee": {
            "words": guarantee_in_words(plan),
            **guarantee_numbers(plan),
            "assumes": "the release key stays secret; the operator, the workers and their storage "
            "are trusted; under one folder it speaks of one data set",
        },
        "trees": [_tree_entry(question) for question in plan.questions],
    }


def checksum_of(manifest: Mapping[str, object]) -> str:
    """SHA-256, in hexadecimal, of a manifest's other entries in canonical JSON.

    It tells that an entry was damaged or edited by hand, not by whom: whoever edits can write
    another checksum too.

    >>> checksum_of({"a": 1, "b": [2]}) == checksum_of({"b": [2], "a": 1, CHECKSUM: "old"})
    True
    """
    entries = {name: value for name, value in manifest.items() if name != CHECKSUM}
    plain = json.loads(json.dumps(entries))  # as it is read back
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
