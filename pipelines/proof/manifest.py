"""Checks of a manifest against itself: all that follows from the specification is computed anew.

The specification holds the budgets of all levels. Scales of noise, intervals, the numbers of the
guarantee and its words follow from it, and are in the manifest too: a change of one shows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dptrees.dpcore import __version__
from dptrees.dpcore.irregular.plan import IrregularPlan, level_sensitivities, sum_sensitivities
from dptrees.dpcore.release.guarantee import ARITHMETIC_VERSION, plan_manifest
from dptrees.dpcore.release.kinds import ReadKeys, ReadUniverse
from dptrees.dpcore.release.manifest import (
    CHECKSUM,
    FORMAT_VERSION,
    LATER_NUMBERS,
    READ_FORMATS,
    manifest_checksum,
)
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.pipelines.proof.check import UNREADABLE, CheckFailed

# Every entry, and whether each release has it.
ENTRIES = {
    **dict.fromkeys(("spec", "dptrees", "guarantee", "trees", "nonce", "key_id"), True),
    **dict.fromkeys(("record", "parts", "files", CHECKSUM), True),
    "arithmetic": False,
    "parameters": False,
    "report": False,
    "series": False,
    "unit_families": False,
}
_ELSEWHERE = "verify it with the version that made it"
# For recomputed floats: in releases without an arithmetic they depend on the processor.
_TOLERANCE = 1e-9
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([abrc.]+[a-z]*[0-9]+)?")
_RATIONAL = re.compile(r"[0-9]+/0*[1-9][0-9]*")
_HEXADECIMAL = {"nonce": 32, "key_id": 16, "record": 64}


def check_entries(manifest: Mapping[str, Any]) -> str:
    """The entries are those that a manifest has, and its checksum is theirs."""
    for name in manifest:
        if name not in ENTRIES:
            raise CheckFailed(f"the entry {name} does not belong in a manifest")
    spec = manifest.get("spec")
    if isinstance(spec, dict) and spec.get("format") in READ_FORMATS[:-1]:
        raise CheckFailed(
            f"it is of format {spec['format']}, and this program makes and checks format "
            f"{FORMAT_VERSION}: {_ELSEWHERE}"
        )
    for name, always in ENTRIES.items():
        if name == "key_id" and name not in manifest:
            raise CheckFailed(
                f"the entry {name} is missing, as early versions left it out: {_ELSEWHERE}"
            )
        if always and name not in manifest:
            raise CheckFailed(f"the entry {name} is missing")
    if manifest[CHECKSUM] != manifest_checksum(manifest):
        raise CheckFailed("it was edited or damaged: its checksum does not match")
    for name, digits in _HEXADECIMAL.items():
        if not re.fullmatch(f"[0-9a-f]{{{digits}}}", str(manifest[name])):
            raise CheckFailed(f"{name} is not {digits} hexadecimal digits")
    if not _VERSION.fullmatch(str(manifest["dptrees"])):
        raise CheckFailed("dptrees is not a version")
    arithmetic = manifest.get("arithmetic", ARITHMETIC_VERSION)
    if type(arithmetic) is not int or not 1 <= arithmetic <= ARITHMETIC_VERSION:
        raise CheckFailed(f"its arithmetic is not 1 to {ARITHMETIC_VERSION}: {_ELSEWHERE}")
    for name in ("parameters", "report", "unit_families"):
        texts = manifest.get(name, {"": ""})
        if not isinstance(texts, dict) or not texts:
            raise CheckFailed(f"{name} is not a section of strings")
        if not all(isinstance(text, str) for text in texts.values()):
            raise CheckFailed(f"{name} is not a section of strings")
    return f"{len(manifest)} entries, checksum {str(manifest[CHECKSUM])[:16]}"


def read_plan(
    manifest: Mapping[str, Any], read_universe: ReadUniverse, read_keys: ReadKeys
) -> ReleasePlan:
    """The plan of the specification, with no value recalled from other entries; only by which
    version's rules intervals are made follows from the trees of the manifest.

    Raises:
        CheckFailed: it is none, or not written as this program writes it.
    """
    spec = manifest["spec"]
    if not isinstance(spec, dict) or spec.get("format") != FORMAT_VERSION:
        raise CheckFailed(f"spec is not of the format {FORMAT_VERSION}, which this program writes")
    try:
        plan = plan_from_spec(spec, read_universe, read_keys)
        again = plain(plan.spec())
        for question, tree in zip(plan.questions, manifest["trees"], strict=False):
            question.follow(tree)
    except UNREADABLE as error:
        raise CheckFailed(f"spec cannot be planned: {type(error).__name__} {error}") from None
    if place := first_difference(again, spec, "spec", tolerance=0.0):
        raise CheckFailed(f"{place} does not follow from the rest of the specification")
    return plan


def check_guarantee(manifest: Mapping[str, Any], plan: ReleasePlan) -> str:
    """Check that the words and numbers of the guarantee follow from the specification."""
    entries = plain(plan_manifest(plan))
    for name in LATER_NUMBERS:
        if name not in manifest["guarantee"]:
            entries["guarantee"].pop(name, None)
    for name in ("guarantee", "series"):
        own, actual = entries.get(name), manifest.get(name)
        if place := first_difference(own, actual, name, tolerance=0.0):
            raise CheckFailed(
                f"{place} does not match the guarantee of the specification{_version(manifest)}"
            )
    expected = entries["guarantee"]
    numbers = {name: value for name, value in expected.items() if name not in ("words", "assumes")}
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in numbers.items()
    )


def check_sensitivities(plan: ReleasePlan) -> str:
    """Check that sensitivities, where the specification states them, follow from the privacy unit,
    the neighboring relation and the bounds of values."""
    for question in (tree for each in plan.questions for tree in each.measured_trees):
        own = getattr(question, "plan", None)
        if not isinstance(own, IrregularPlan):
            continue
        measure = getattr(question, "measure", None)
        if measure is None:
            needed = level_sensitivities(own.tree, plan.unit, keyed=own.keyed)
        else:
            needed = sum_sensitivities(
                own.tree, plan.unit, lower=measure.lower, upper=measure.upper, keyed=own.keyed
            )
        if own.sensitivities != needed:
            raise CheckFailed(f"those of {question.name} do not follow from its unit and bounds")
    return "they follow from the privacy unit, the neighboring relation and the bounds of values"


def check_noise(manifest: Mapping[str, Any], plan: ReleasePlan) -> str:
    """Every stated law of noise is that of its level's budget and sensitivity."""
    expected = plain(plan_manifest(plan))["trees"]
    if place := first_difference(expected, manifest["trees"], "trees", tolerance=_TOLERANCE):
        raise CheckFailed(
            f"{place} does not follow from the budgets of the specification{_version(manifest)}"
        )
    return "laws, scales and intervals follow from budgets and sensitivities"


def _version(manifest: Mapping[str, Any]) -> str:

    made = manifest["dptrees"]
    return "" if made == __version__ else f" (made by dptrees {made}; verify it with that one)"


def is_exact(manifest: Mapping[str, Any]) -> bool:
    """Whether floats of a release have this version's arithmetic, the same on every processor."""
    return bool(manifest.get("arithmetic") == ARITHMETIC_VERSION)


def plain(value: object) -> Any:
    """A value as it is read back from JSON."""
    return json.loads(json.dumps(value))


def first_difference(
    expected: Any, actual: Any, place: str, *, tolerance: float, rationals: bool = False
) -> str:
    """Return the place where two JSON values differ first; "" where they are equal.

    Args:
        expected, actual: the values.
        place: their name.
        tolerance: relative, of floats.
        rationals: the tolerance holds for strings such as "1/3" too, which are exact budgets.

    >>> first_difference({"a": [1, 2.0]}, {"a": [1, 2.5]}, "x", tolerance=1e-9)
    'x.a[1]'
    >>> first_difference("1/3", "1000000000001/3000000000000", "x", tolerance=1e-9, rationals=True)
    ''
    >>> first_difference(1, True, "x", tolerance=0.0), first_difference(1, 1.0, "x", tolerance=0.0)
    ('x', 'x')
    """
    if type(expected) is not type(actual):
        return place
    if isinstance(expected, dict):
        for name in [*expected, *actual]:
            if name not in expected or name not in actual:
                return f"{place}.{name}"
            inner = first_difference(
                expected[name],
                actual[name],
                f"{place}.{name}",
                tolerance=tolerance,
                rationals=rationals,
            )
            if inner:
                return inner
        return ""
    if isinstance(expected, list):
        return _in_lists(expected, actual, place, tolerance=tolerance, rationals=rationals)
    if isinstance(expected, float) and math.isclose(expected, actual, rel_tol=tolerance):
        return ""
    if rationals and isinstance(expected, str) and _are_close(expected, actual, tolerance):
        return ""
    return "" if expected == actual else place


def _are_close(expected: str, actual: str, tolerance: float) -> bool:
    """Whether two strings are rationals that differ by the tolerance at most."""
    if not (_RATIONAL.fullmatch(expected) and _RATIONAL.fullmatch(actual)):
        return False
    one, other = Fraction(expected), Fraction(actual)
    return abs(one - other) <= Fraction(tolerance) * max(abs(one), abs(other))


def _in_lists(
    expected: Sequence[Any], actual: Sequence[Any], place: str, *, tolerance: float, rationals: bool
) -> str:
    for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
        inner = first_difference(
            one, other, f"{place}[{index}]", tolerance=tolerance, rationals=rationals
        )
        if inner:
            return inner
    return "" if len(expected) == len(actual) else f"{place}[{min(len(expected), len(actual))}]"
