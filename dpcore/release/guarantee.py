"""What a release guarantees, in words and numbers, for its manifest, report and summary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from dpcore import __version__
from dpcore.privacy.budget import Measure, Neighbors
from dpcore.release.plan import ReleasePlan
from dpcore.series.words import run_in_words, run_numbers

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
        f"{_bounds(plan)}{run_in_words(plan.run)}The privacy unit is the row: a person in several "
        f"rows is protected less, with {times}. Noise is derived from a secret key: whoever learns "
        "the key can remove the noise, so the guarantee holds only while the key stays secret."
    )


def _agreement(plan: ReleasePlan) -> str:
    """What else two data sets must share to be protected from each other: the invariants."""
    declared = [words for each in plan.questions if (words := each.declared_public) is not None]
    if not declared:
        return ""
    return (
        f", and which agree on the counts that are declared public (down to the level "
        f"{', '.join(declared)}; this release states them exactly, and what they tell is not "
        "protected: a weaker guarantee than without them)"
    )


def _bounds(plan: ReleasePlan) -> str:
    """The bounds that values are clamped to before they are summed."""
    bounds = [words for each in plan.questions if (words := each.clamped) is not None]
    return f"Values are clamped before they are summed: {', '.join(bounds)}. " if bounds else ""


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
        "trees": [question.entry() for question in plan.questions],
        **({} if plan.run is None else {"series": run_numbers(plan.name, plan.run)}),
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
