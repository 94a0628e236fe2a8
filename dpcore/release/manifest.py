"""The manifest of a release as it is read: its format, its checksum and its guarantee.

Nothing here makes the plan, so that what needs no plan is read at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

# Changes whenever the same specification would give other bits in a release.
FORMAT_VERSION = 3
# Format 2 drew other bits (without a folder's nonce), but its specifications read the same.
READ_FORMATS = (2, FORMAT_VERSION)
# The entry of a manifest that shows whether the others are as they were written.
CHECKSUM = "checksum"
# Entries of the guarantee that releases of earlier versions lack.
LATER_NUMBERS = ("period", "invariants")


def manifest_checksum(manifest: Mapping[str, object]) -> str:
    """SHA-256, in hexadecimal, of a manifest's other entries in canonical JSON.

    It shows that an entry was damaged or edited by hand, not by whom: anyone who edits can write
    another checksum too.

    >>> manifest_checksum({"a": 1, "b": [2]}) == manifest_checksum({"b": [2], "a": 1,
    ...     CHECKSUM: "old"})
    True
    """
    entries = {name: value for name, value in manifest.items() if name != CHECKSUM}
    plain = json.loads(json.dumps(entries))  # as it is read back
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def states_its_guarantee(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is as it was written, and its guarantee that of its specification, as far
    as both are seen without a plan.

    Args:
        manifest: of a release.

    Returns:
        False if only its plan can show it: a first release spends a part of the budget, the
        guarantee has `LATER_NUMBERS`, or the manifest has no checksum; or if it has another
        format or form, and making the plan says what is wrong.

    >>> spec = {"unit": "row", "neighbors": "add_remove", "measure": "epsilon", "budget": "1"}
    >>> spec |= {"format": FORMAT_VERSION, "trees": [{"name": "age", "budget": "1"}]}
    >>> stated = {"unit": "row", "neighbors": "add_remove", "epsilon": "1"}
    >>> manifest = {"spec": spec | {"stated": None}, "guarantee": stated}
    >>> manifest |= {"trees": [{"name": "age"}], "parts": []}
    >>> states_its_guarantee(manifest | {CHECKSUM: manifest_checksum(manifest)})
    True
    """
    if manifest.get(CHECKSUM) != manifest_checksum(manifest):
        return False
    spec, stated = manifest["spec"], manifest["guarantee"]
    if not (_has_form(manifest) and _fits_budget(spec)):
        return False
    if any(name in spec for name in ("selection", "bounds")):
        return False
    if any(name in stated for name in LATER_NUMBERS):
        return False
    expected = {name: spec[name] for name in ("neighbors", "unit", "dataset") if name in spec}
    expected[spec["measure"]] = spec["budget"]
    if spec["stated"] is not None:
        expected |= dict(zip(("epsilon", "delta"), spec["stated"], strict=True))
    return expected == {name: stated.get(name) for name in expected}


def _has_form(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is of this format, and each tree has one name and one entry."""
    spec = manifest["spec"]
    names = [tree["name"] for tree in spec["trees"]]
    return (
        type(spec["format"]) is int
        and spec["format"] == FORMAT_VERSION
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) == len(manifest["trees"]) > 0
        and isinstance(manifest["parts"], list)
        and isinstance(manifest.get("files", {}), dict)
    )


def _fits_budget(spec: Mapping[str, Any]) -> bool:
    """Whether the budgets that trees state sum to no more than the whole, where that is stated."""
    amounts = [Fraction(tree["budget"]) for tree in spec["trees"] if "budget" in tree]
    return spec["stated"] is not None or sum(amounts) <= Fraction(spec["budget"])
