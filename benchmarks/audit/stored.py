"""Findings of the audits on disk, so that they can be made in several runs.

Each run replaces the findings that it made again. A page drawn from the file shows the newest
finding of every plan and fault.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.audit.attack import Attack
from benchmarks.audit.exact import Finding
from benchmarks.audit.targets import Claim

# (kind of release, measure, finding)
ExactFinding = tuple[str, str, Finding]


@dataclass(kw_only=True)
class Findings:
    """What the audits found.

    Attributes:
        exact: by (kind of release, measure), the exact losses.
        attacks: by (kind of release, fault), the bounds from released numbers.
    """

    exact: dict[tuple[str, str], Finding] = field(default_factory=dict)
    attacks: dict[tuple[str, str], Attack] = field(default_factory=dict)

    def add(self, exact: list[ExactFinding], attacks: list[Attack]) -> None:
        """Replace the findings of the same kinds."""
        self.exact |= {(kind, measure): found for kind, measure, found in exact}
        self.attacks |= {(each.kind, each.fault): each for each in attacks}

    @classmethod
    def read(cls, path: Path) -> Findings:
        """Return the findings in a file; none if it does not exist."""
        found = cls()
        if path.exists():
            entries = json.loads(path.read_text(encoding="utf-8"))
            found.add(
                [_exact(each) for each in entries["exact"]],
                [_attack(each) for each in entries["attacks"]],
            )
        return found

    def write(self, path: Path) -> None:
        """Write all findings, a line for each."""
        exact = [
            {"kind": kind, "measure": measure, "pairs": found.pairs}
            | {"ratio": str(found.ratio), "leaks": found.leaks}
            for (kind, measure), found in self.exact.items()
        ]
        attacks = [
            {"kind": each.kind, "fault": each.fault, "releases": each.releases}
            | {"found": each.found, "alarm": each.alarm, "measure": each.claim.measure}
            | {"amount": str(each.claim.amount), "delta": str(each.claim.delta)}
            for each in self.attacks.values()
        ]
        path.write_text(_lines({"exact": exact, "attacks": attacks}), encoding="utf-8")


def _lines(entries: dict[str, list[dict[str, Any]]]) -> str:
    parts = [
        f'"{name}": [\n' + ",\n".join(json.dumps(each) for each in listed) + "\n]"
        for name, listed in entries.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _exact(entry: dict[str, Any]) -> ExactFinding:
    text = entry["ratio"]
    ratio = Fraction(text) if "/" in text or text.isdigit() else float(text)
    found = Finding(pairs=entry["pairs"], ratio=ratio, leaks=entry["leaks"])
    return entry["kind"], entry["measure"], found


def _attack(entry: dict[str, Any]) -> Attack:
    claim = Claim(
        measure=entry["measure"],
        amount=Fraction(entry["amount"]),
        delta=Fraction(entry["delta"]),
    )
    return Attack(
        kind=entry["kind"],
        fault=entry["fault"],
        claim=claim,
        found=entry["found"],
        releases=entry["releases"],
        alarm=entry["alarm"],
    )
