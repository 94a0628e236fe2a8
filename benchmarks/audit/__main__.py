"""Audits of the guarantee by exact losses and by released numbers, in Markdown.

    python -m benchmarks.audit [--quick] [--write docs/audit.md]     all exact losses: an hour
    python -m benchmarks.audit --only "wide tables" --write docs/audit.md
    python -m benchmarks.audit --only --write docs/audit.md          the page of what is stored

Findings are kept in findings.json beside this file; the page has all that are there, and the
findings of `benchmarks.audit.black_box`.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.audit import black_box
from benchmarks.audit.choices import audit_bounds, audit_value_bounds
from benchmarks.audit.exact import (
    KINDS,
    KINDS_OF_UNITS,
    MEASURES,
    Finding,
    audit,
    audit_units,
)
from benchmarks.audit.published import audit_sparse, audit_thresholds
from benchmarks.audit.tables import WORKLOADS, audit_columns, audit_tables
from benchmarks.audit.trees import UNITS
from benchmarks.audit.units import (
    audit_selection,
    audit_series,
    audit_sparse_units,
    audit_threshold_units,
)
from benchmarks.harness import holds, section, table

# (kind of release, measure, finding), from a name and a number of random plans.
ExactFinding = tuple[str, str, Finding]
Make = Callable[[str, int], Iterator[ExactFinding]]
PLANS = 40
PURE_MEASURES = ("epsilon", "rho")
STORED = Path(__file__).with_name("findings.json")
# Of the laws that are enumerated in floating point.
ROUNDING = 1e-9

HEADER = """\
# Audits of the guarantee

Two audits try to prove the guarantee of a release wrong. This page is for everyone who wants to
check the claims of dptrees. It lists the attempts and their results. The
[guarantee](guarantee.md) states the claims, and [proofs](proofs.md) has the reasons. The page is
written by `make audit` and `make black-box`, never by hand. Short forms run with the other tests,
in `tests/audit`.
{quick}"""
QUICK = "\n**A quick run: few plans and few releases, so faults may stay hidden.**\n"

LIMITS = """\
## Limits of these audits

- **An audit can prove a claim wrong, never right.** The proofs are in the docstrings of the modules
  that spend the budget. An audit looks for gaps between proof and program.
- **Exact losses** are computed for random plans of small trees, cut into small chunks as large
  trees are, and for random pairs of tables, not for all of them. This audit assumes that the
  samplers have their stated laws; `tests/dpcore/noise/test_laws.py` tests these.
- **The black box** needs an event with a probability of some percent on both data sets. It does
  not detect noise that is 2 % too small, or a delta of 1e-6. A bound below the claim is the
  expected result of a correct release, and no measure of its privacy.
- **Not in section 1**: adaptive trees over domains of values or labels, exponential quantiles,
  matrix mechanisms ("factorised"), and series that protect a unit's rows of one period. Their exact
  losses and sensitivities are compared with brute force in `tests/dpcore/adaptive/test_privacy.py`,
  `exponential/test_privacy.py`, `factorised/test_sensitivity.py` and `tests/dpcore/series`. Section
  2 has all of them but series.
- **Wide tables** are audited under epsilon and rho, not under (epsilon, delta). That follows from
  rho by a conversion, which section 1 tests with other kinds.
- **A delta** is examined in the exact audit only, which enumerates the outcomes of a sparse tree or
  a search.
- All audits assume that the key is secret and the keystream random: the guarantee is
  computational. Neither examines running times, sizes of files, or other actions of an operator.
"""


def both(audit: Callable[..., Finding], *kinds: str, scale: int = 1) -> Make:
    """Make the findings of an audit under epsilon and rho, of some kinds or of the only one."""

    def make(name: str, plans: int) -> Iterator[ExactFinding]:
        for kind in kinds or (name,):
            given = (kind,) if kinds else ()
            for measure in PURE_MEASURES:
                yield kind, measure, audit(*given, measure, plans=scale * plans, pairs=8)

    return make


def stated(audit: Callable[..., Finding], pairs: int = 4, claim: str = "epsilon, delta") -> Make:
    """Make the finding of an audit of a stated delta."""
    return lambda name, plans: iter([(name, claim, audit(plans=plans, pairs=pairs))])


def of_kind(kind: str, audit: Callable[..., Finding]) -> Make:
    """Make the findings of one kind under every measure."""
    return lambda name, plans: (
        (name, measure, audit(kind, measure, plans=plans, pairs=8)) for measure in MEASURES
    )


# Laws of smaller units have fewer outcomes.
SMALL = [unit for unit in UNITS if unit.rows <= 4]
# All parts of the exact losses, by name; the order is that of the page.
PARTS: dict[str, Make] = {
    **{kind: of_kind(kind, audit) for kind in KINDS},
    "sparse trees": stated(audit_sparse),
    "searches between thresholds": stated(audit_thresholds),
    **{f"{kind}, of units": of_kind(kind, audit_units) for kind in KINDS_OF_UNITS},
    "sparse trees, of units": stated(functools.partial(audit_sparse_units, units=SMALL)),
    "searches between thresholds, of units": stated(audit_threshold_units),
    "private keys, of units": stated(audit_selection, 8, "delta"),
    # A wide table has many steps, so it needs more random plans to show them all.
    "wide tables": both(audit_tables, scale=4),
    "bounds of units": both(audit_bounds),
    "columns": both(audit_columns, *WORKLOADS),
    "series, all rows of a unit": both(audit_series),
    "bounds of values": both(audit_value_bounds),
}


def summary_section(exact: Sequence[ExactFinding], boxes: Mapping[str, Mapping[str, Any]]) -> str:
    """Both audits in one table: what was tried, what it found, and what it would have found."""
    pairs = sum(each.pairs for _, _, each in exact)
    largest = max((float(each.ratio) for _, _, each in exact), default=0.0)
    leaks = sum(each.leaks for _, _, each in exact)
    above = sum(each["correct"] > 1 for each in boxes.values())
    half = sum(each["half"] > 1 for each in boxes.values())
    found = "found" if above or leaks or largest > 1 + ROUNDING else "never found"
    rows = [
        (
            "1. Exact losses: all noise and data known",
            f"{pairs:,} pairs of neighboring tables, {len(exact)} kinds of release and claim",
            f"largest loss {largest:.4f} of the claim; {leaks} leaks",
            "a loss above the claim (under epsilon and delta by 0.2 % or more), or an exact number "
            "in a release, in these pairs",
        ),
        (
            "2. A black box: released numbers alone",
            f"{len(boxes)} configurations",
            f"{above} of {len(boxes)} correct releases above their claim; half of the noise found "
            f"in {half} of {len(boxes)}",
            "half of the noise, if the attack is strong enough for that kind of release",
        ),
    ]
    return section(
        "Summary",
        table(("audit", "tried", "found", "would have found"), rows).replace("---:", "---"),
        f"""A correct release loses more than it claims, or shows an exact number: {found}. The
        planted fault shows how much the black box can detect. A better attack may detect more of
        it, and the exact losses find much smaller faults. No audit shows that a guarantee holds
        ([limits](#limits-of-these-audits)).""",
    )


def exact_section(found: Sequence[ExactFinding]) -> str:
    """The table of the exact losses."""
    kept = all(each.ratio <= 1 + ROUNDING for _, _, each in found)
    rows = [
        (kind, measure, str(each.pairs), f"{float(each.ratio):.4f}", str(each.leaks))
        for kind, measure, each in found
    ]
    return section(
        "1. Exact losses",
        """This audit knows everything: the data, the plan and each draw of noise. For random plans
        and random pairs of neighboring tables it adds up the exact privacy loss, and compares it
        with the claim. The column "loss" is the largest loss of all pairs as a fraction of the
        claim. 1 means that the claim is met exactly, so less noise would break it. The column
        "leaks" counts pairs where a release with the noisy counts of its neighbor published
        anything else than the neighbor did. Then an exact number would have escaped the noise.""",
        table(("release", "claim in", "pairs", "loss", "leaks"), rows),
        f"""No pair loses more than is claimed: {holds(kept)}. No release shows more than follows
        from its noisy counts: {holds(not any(each.leaks for _, _, each in found))}.""",
        """**Plans and tables.** The plans are planned, set by hand, or from the papers
        ("published"). They have keys, quantiles, public totals and public levels, bounded sums of
        either sign, weights, and partitions of boxes that split some nodes or all. The relations
        are add_remove and substitute. The pairs of tables are at every edge: first and last cells,
        bounds of cells and of values and beyond them, null, NaN, infinities, unknown keys, invalid
        paths. The rows pass through the maps of the trees, and the counts through the release's own
        code. Every draw of noise records the exact counts to which it was added. If noise chooses
        which nodes of a box are examined, the second release gets the noisy counts of the first. It
        must examine the same nodes, and the losses of these are added up.""",
        """**Losses.** Under epsilon and rho the losses of all draws, |d| / scale and d^2 / (2
        sigma^2), are added up as fractions and compared with the claim exactly. Under (epsilon,
        delta) the loss is the epsilon at the claimed delta. For Gaussian noise the dp-accounting
        library composes it (from below, to two parts in a thousand). For sparse trees and searches
        it follows from the exact law of the release, outcome by outcome. Sums, and trees whose
        levels repeat counts, are converted from rho, which leaves a tenth unused. A search pays for
        more answers than small trees give.""",
        """**"Of units"**: the tables differ in one unit of many rows, up to ten under every key,
        all alike or of a few kinds, and rows pass through contribution bounding. For private keys
        the loss is the delta at the stated epsilon, by the exact law of all decisions.""",
        """**"Wide tables"** (`kind: table`) differ in a row, or in a unit of up to ten rows. The
        second release gets the noisy counts and the choices of the first, as in adaptive
        composition. The losses of all noise are added up. Each choice of a pair adds the largest
        loss of any outcome, by the exact law of the weights. Most of the budget is for the columns,
        the choices or the pairs, so that a fault in any of them is visible.""",
        """**"Bounds of units"** (`max_rows` or `max_keys`: auto) are one choice, whose whole law is
        enumerated. Choices are laws in floating point. Under rho the loss is the largest Renyi
        divergence of some orders, divided by the order, and only choices at even odds come near the
        claim.""",
        """**"Bounds of values"** (`lower` or `upper`: auto) are one noisy histogram. Its losses are
        added up like the losses of a tree. Which bounds follow is given by the noisy counts
        alone.""",
        """**"Means"** (`objective: mean`) **and "different values"** (`kind: distinct`) differ in a
        row or in a unit of up to nine rows, with and without keys. Values are at the bounds, beyond
        them, and missing. **"Sketches"** (`kind: sketch`) have few cells, in which values collide,
        and no keys.""",
        """**"Series"** (`unit: per_series`) have two to five periods. Data sets differ in one unit
        that has rows in some or all of them, in more or in fewer than the bound. Every run is made
        from its rows and from the sealed state of the run before, and the losses of all runs are
        added up. Noise that a later run computes again counts once, and must be the same. Trees are
        ordered, boxes of all rows so far (with each way to store their counts), means or numbers of
        different values.""",
    )


def read_findings() -> dict[tuple[str, str], Finding]:
    """The findings of earlier runs, by kind and measure."""
    found = {}
    for entry in json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else ():
        text = entry["ratio"]
        ratio = Fraction(text) if "/" in text or text.isdigit() else float(text)
        finding = Finding(pairs=entry["pairs"], ratio=ratio, leaks=entry["leaks"])
        found[entry["kind"], entry["measure"]] = finding
    return found


def write_findings(found: Mapping[tuple[str, str], Finding]) -> None:
    """Write all findings, a line for each."""
    lines = [
        json.dumps({"kind": kind, "measure": measure} | vars(each) | {"ratio": str(each.ratio)})
        for (kind, measure), each in found.items()
    ]
    STORED.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def document(found: Mapping[tuple[str, str], Finding], *, quick: bool) -> str:
    """Return the whole page."""
    exact = [(*key, each) for key, each in found.items()]
    boxes = {} if quick else black_box.stored()
    return "\n".join(
        (
            HEADER.format(quick=QUICK if quick else ""),
            summary_section(exact, boxes),
            exact_section(exact),
            *([] if quick else [black_box.page(boxes)]),
            LIMITS,
        )
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the page or write it to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.audit", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few runs, for a first look")
    parser.add_argument(
        "--only", nargs="*", choices=PARTS, default=PARTS, metavar="PART", help="; ".join(PARTS)
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="the file to write")
    options = parser.parse_args(arguments)
    # The library says in every call that it rounds downwards by another method than upwards.
    logging.getLogger().setLevel(logging.ERROR)
    start = time.perf_counter()
    made = {
        (kind, measure): each
        for name in options.only
        for kind, measure, each in PARTS[name](name, PLANS // 10 if options.quick else PLANS)
    }
    if not options.quick:
        made = read_findings() | made
        write_findings(made)
    page = document(made, quick=options.quick)
    if options.write is None:
        print(page, end="")
    else:
        options.write.write_text(page, encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
