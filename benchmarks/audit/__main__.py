"""Audits the guarantee, by exact losses and by attacks on released numbers, in Markdown.

    python -m benchmarks.audit [--quick] [--write docs/audit.md]     everything: some hours
    python -m benchmarks.audit --only exact                          a part
    python -m benchmarks.audit --only "exact, wide tables" "wide table" --write docs/audit.md

Parts are kept in findings.json beside this file; the page has all that are there.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.audit.attack import FAULTS, NOTHING, Attack, attacks
from benchmarks.audit.bounds import audit_bounds
from benchmarks.audit.columns import WORKLOADS, audit_columns
from benchmarks.audit.exact import KINDS, MEASURES, Finding, audit
from benchmarks.audit.published import audit_sparse
from benchmarks.audit.selection import audit_selection
from benchmarks.audit.series_units import audit_series
from benchmarks.audit.stored import ExactFinding, Findings
from benchmarks.audit.tables import audit_tables
from benchmarks.audit.targets import TARGETS
from benchmarks.audit.threshold_cases import audit_thresholds
from benchmarks.audit.units import (
    KINDS_OF_UNITS,
    UNITS,
    audit_sparse_units,
    audit_threshold_units,
    audit_units,
)
from benchmarks.audit.whole import audit_whole
from benchmarks.reproduction.markdown import holds, number, section, table

RELEASES = 20_000
# Random plans of each kind for the exact losses.
PLANS = 40
# A wide table has many steps, so it needs more random plans to show them all.
_OF_TABLES = 4
PURE_MEASURES = ("epsilon", "rho")
EXACT = "exact"
STORED = Path(__file__).with_name("findings.json")
ALARM = 0.001
# Of the laws that are enumerated in floating point.
ROUNDING = 1e-9

HEADER = """\
# Audits of the guarantee

Written by `make audit`, never by hand. Two audits try to prove the claims of a release wrong: one
knows all that is drawn and adds up exact losses, the other sees released numbers only. Both are
shown what a faulty release is: here and in tests/audit, where short forms of them run with the
other tests.
{quick}"""
QUICK = "\n**A quick run: few plans and few releases, so faults may stay hidden.**\n"

LIMITS = """\
## What such audits can and cannot show

- An audit can prove a claim wrong, never right. That the claims hold is proved in the docstrings of
  the modules that spend the budget; an audit looks for steps between proof and program that nobody
  saw.
- The exact audit covers random plans of small trees (cut into small chunks, as large trees are) and
  random pairs of tables, not all of them. It takes the samplers to have the laws that they state;
  tests/dpcore/noise/test_laws.py looks at these.
- The attack needs an event of some percent on both data sets: it sees noise that is a third too
  small, not noise that is 2 % too small, and no delta of 1e-6. It attacks one tiny tree of each
  kind. A bound below the claim is what a correct release gives, not a measure of its privacy.
- Section 1 has no adaptive trees over domains of values or labels, no exponential quantiles, no
  factorised strategies, and no series that protect a unit's rows of one period. Their exact losses
  and sensitivities are compared with brute force in tests/dpcore/adaptive/test_privacy.py,
  exponential/test_privacy.py, factorised/test_sensitivity.py and tests/dpcore/series; section 2
  attacks all of them.
- Wide tables are audited under epsilon and rho, not under (epsilon, delta), which follows from rho
  by a conversion that section 1 tries with other kinds. Their target in section 2 attacks the noise
  of one pair. No tiny table loses nearly all by its choices alone: these are paid for scores that
  move in opposite directions. So a fault of their rate is for section 1 to find.
- Section 2 attacks no means and no numbers of different values. Their noise is compared with its
  exact law in tests/dpcore/mean and tests/dpcore/distinct.
- A delta is looked at in the exact audit only: what a sparse tree or a search shows with it is
  enumerated there. Section 2 attacks private keys at a delta of 5 %, where one coin shows most.
- Both take the key as secret and the keystream as random: the guarantee is computational. Neither
  looks at running times, the size of files, or what an operator does besides.
"""


def exact_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """(kind, measure, what was found) of random plans of every kind."""
    found = [each for kind in KINDS for each in kind_findings(plans, kind)]
    both = "epsilon, delta"
    found.append(("sparse trees", both, audit_sparse(plans=plans, pairs=4)))
    found.append(("searches between thresholds", both, audit_thresholds(plans=plans, pairs=4)))
    found.append(("all kinds at once", both, audit_whole(plans=plans // 2 + 1, pairs=3)))
    found += unit_findings(plans) + table_findings(plans) + bound_findings(plans)
    return found + column_findings(plans) + series_findings(plans)


def kind_findings(plans: int, kind: str) -> list[tuple[str, str, Finding]]:
    """The same of one kind, between tables that differ in a row."""
    return [(kind, measure, audit(kind, measure, plans=plans, pairs=8)) for measure in MEASURES]


def units_of_kind_findings(plans: int, kind: str) -> list[tuple[str, str, Finding]]:
    """The same of one kind, between tables that differ in one unit of many rows."""
    return [
        (f"{kind}, of units", measure, audit_units(kind, measure, plans=plans, pairs=8))
        for measure in MEASURES
    ]


def table_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of wide tables, between tables that differ in a row or in a unit of many."""
    return [
        ("wide tables", measure, audit_tables(measure, plans=_OF_TABLES * plans, pairs=8))
        for measure in PURE_MEASURES
    ]


def bound_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of the choice of a bound, between tables that differ in a unit of many rows."""
    return [
        ("bounds of units", measure, audit_bounds(measure, plans=plans, pairs=8))
        for measure in PURE_MEASURES
    ]


def column_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of means and numbers of different values, of rows and of units of many rows."""
    return [
        (kind, measure, audit_columns(kind, measure, plans=plans, pairs=8))
        for kind in WORKLOADS
        for measure in PURE_MEASURES
    ]


def series_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of whole series, between data sets that differ in one unit of several periods."""
    return [
        ("series, all rows of a unit", measure, audit_series(measure, plans=plans, pairs=8))
        for measure in PURE_MEASURES
    ]


def adaptive_box_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of adaptive boxes, whose counts are averaged in a third of the plans."""
    kind = "boxes, adaptive"
    return kind_findings(plans, kind) + units_of_kind_findings(plans, kind)


def unit_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same between tables that differ in one unit of many rows."""
    found = [each for kind in KINDS_OF_UNITS for each in units_of_kind_findings(plans, kind)]
    both = "epsilon, delta"
    small = [unit for unit in UNITS if unit.rows <= 4]  # whose laws have fewer outcomes
    sparse = audit_sparse_units(plans=plans, pairs=4, units=small)
    found.append(("sparse trees, of units", both, sparse))
    searches = audit_threshold_units(plans=plans, pairs=4)
    found.append(("searches between thresholds, of units", both, searches))
    found.append(("private keys, of units", "delta", audit_selection(plans=plans, pairs=8)))
    return found


# Parts of the exact losses that can be made alone.
EXACT_PARTS: dict[str, Callable[[int], list[ExactFinding]]] = {
    "exact, adaptive boxes": adaptive_box_findings,
    "exact, wide tables": table_findings,
    "exact, bounds of units": bound_findings,
    "exact, means and different values": column_findings,
    "exact, series": series_findings,
}


def exact_section(found: Sequence[ExactFinding]) -> str:
    """The table of the exact losses."""
    kept = all(each.ratio <= 1 + ROUNDING for _, _, each in found)
    rows = [
        (kind, measure, str(each.pairs), f"{float(each.ratio):.4f}", str(each.leaks))
        for kind, measure, each in found
    ]
    return section(
        "1. Exact losses, with everything known",
        """Random plans (planned, by hand, published; with keys, quantiles, public totals and public
        levels, bounded sums of either sign, weights; partitions of boxes that split some nodes or
        all) under add_remove and substitute, and pairs of
        neighboring tables of rows at every edge: first and last cells, bounds of cells and of
        values and beyond them, null, NaN, infinities, unknown keys, invalid paths. The rows pass
        through the questions' own maps, the counts through the release's own code; every draw of
        noise records to which exact counts it was added. Where noise chooses which nodes of a box
        are looked at, the second release gets the noisy counts of the first, must look at the same
        nodes, and the losses of these are added up.""",
        """Under epsilon and rho the losses of all draws, |d| / scale and d^2 / (2 sigma^2), are
        added up as fractions and compared with the claim exactly. Under (epsilon, delta) the loss
        is the epsilon at the claimed delta: of Gaussian noise as the dp-accounting library composes
        it (from below, to two parts in a thousand), of sparse trees and searches by the exact law
        of what is released, outcome by outcome. The column "loss" is the largest of all pairs in
        parts of the claim; 1 means that a claim is met, and that less noise would break it. Sums,
        and trees whose levels repeat counts, are converted from rho, which leaves a tenth unused; a
        search pays for more answers than small trees give.""",
        """"Of units": the tables differ in one unit of many rows, up to ten under every key, all
        alike or of a few kinds, and rows pass through bounding. Of private keys the loss is the
        delta at the stated epsilon, by the exact law of all coins.""",
        """"Wide tables" (kind: table) differ in a row, or in a unit of up to ten rows. The second
        release gets the noisy counts and the choices of the first, as in adaptive composition; the
        losses of all noise are added up, and of every choice of a pair the largest loss of any
        outcome, by the exact law of the weights. Most of the budget is for the columns, the choices
        or the pairs, so that a fault of any shows. "Bounds of units" (max_rows or max_keys: auto)
        are one choice, whose whole law is enumerated. Choices are laws in floating point; of a rho
        the loss is the largest Renyi divergence of some orders, over the order, and only choices at
        even odds come near the claim.""",
        """"Means" (objective: mean) and "different values" (kind: distinct) differ in a row or in a
        unit of up to nine rows, with and without keys; values lie at the bounds, beyond them, and
        are missing.""",
        """"Series" (unit: per_series) are of two to five periods; data sets differ in one unit that
        has rows in some of them or in all, in more than it is counted in or in fewer. Every run
        is made from its rows and from what the run before left under seal, and the losses of all
        runs are added up; noise that a later run computes again counts once, and must be the same.
        Trees are ordered, boxes of all rows so far (their counts held in each way), means or
        numbers of different values.""",
        """"Leaks" counts pairs where a release given the noisy counts of its neighbor published
        anything else than that did: something exact would have got past the noise.""",
        table(("release", "claim in", "pairs", "loss", "leaks"), rows),
        f"""No pair loses more than is claimed: {holds(kept)}. No release shows more than follows
        from its noisy counts: {holds(not any(each.leaks for _, _, each in found))}.""",
    )


def attack_section(found: Sequence[Attack]) -> str:
    """The table of the attacks."""
    rows = [
        (
            each.kind,
            str(each.claim),
            each.fault,
            f"{each.releases:,}",
            number(each.found),
            _verdict(each),
        )
        for each in found
    ]
    right = [each.is_rejected for each in found if each.fault == NOTHING]
    wrong = [each.is_rejected for each in found if each.fault != NOTHING]
    return section(
        "2. Attacks on what is released",
        """Releases of each of two neighboring data sets, as many of each as the table says, are
        made in memory, each with a fresh key; only released numbers are read. One half of them
        serves to find an event that separates the two data sets (a threshold of one number, of a
        linear statistic, or of the sum of log ratios of frequencies). On the other half Clopper and
        Pearson bound the probability of the event, and so what is lost: epsilon by
        ln((P - delta) / Q), rho as for Gaussian noise by (z(P) - z(Q))^2 / 2.""",
        f"""All {len(found)} bounds of the table hold together with a probability of
        {100 * (1 - sum(each.alarm for each in found)):.2f} % (by Bonferroni; each fails with at
        most {ALARM:g} / n, where n bounds were planned when it was made).
        A claim below its bound is false: "found". The faults are planted: noise of a scale 30 % too
        small, noise of a budget that is spent twice, the row that the data sets differ by counted
        twice.""",
        table(("release", "claimed", "fault", "releases", "lower bound", "found"), rows),
        f"""No claim of a correct release is rejected: {holds(not any(right))}. Every planted fault
        is found: {holds(all(wrong))} ({sum(wrong)} of {len(wrong)}).{_missing(found)}""",
    )


def _missing(found: Sequence[Attack]) -> str:
    """Return which kinds of release have not been attacked yet."""
    missing = [kind for kind in TARGETS if kind not in {each.kind for each in found}]
    return f" Not attacked for this page: {'; '.join(missing)}." if missing else ""


def _verdict(attack: Attack) -> str:
    return "found" if attack.is_rejected else "not found"


_EVERY = tuple((kind, fault) for kind in TARGETS for fault in FAULTS)


def document(found: Findings, *, quick: bool) -> str:
    """Return the whole page."""
    exact = [(kind, measure, each) for (kind, measure), each in found.exact.items()]
    return "\n".join(
        (
            HEADER.format(quick=QUICK if quick else ""),
            exact_section(exact),
            attack_section([found.attacks[each] for each in _EVERY if each in found.attacks]),
            LIMITS,
        )
    )


def audited(parts: Sequence[str], plans: int, releases: int) -> Findings:
    """Return the findings of some parts: the exact losses, or attacks on kinds of release."""
    found = Findings()
    kinds = [each for each in TARGETS if each in parts]
    if EXACT in parts:
        exact = exact_findings(plans)
    else:
        exact = [
            each for name, find in EXACT_PARTS.items() if name in parts for each in find(plans)
        ]
    found.add(exact, attacks(releases, ALARM, kinds) if kinds else [])
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the page or write it to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.audit", description=__doc__.splitlines()[0]
    )
    parts = (EXACT, *EXACT_PARTS, *TARGETS)
    parser.add_argument("--quick", action="store_true", help="few runs, for a first look")
    parser.add_argument(
        "--only", nargs="+", choices=parts, default=parts, metavar="PART", help="; ".join(parts)
    )
    parser.add_argument(
        "--releases", type=int, default=RELEASES, metavar="N", help=f"by default {RELEASES}"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="the file to write")
    options = parser.parse_args(arguments)
    # The library says in every call that it rounds downwards by another method than upwards.
    logging.getLogger().setLevel(logging.ERROR)
    start = time.perf_counter()
    part = 10 if options.quick else 1
    found = audited(options.only, PLANS // part, options.releases // part)
    if not options.quick:
        known = Findings.read(STORED)
        known.add([(*key, each) for key, each in found.exact.items()], [*found.attacks.values()])
        known.write(STORED)
        found = known
    page = document(found, quick=options.quick)
    if options.write is None:
        print(page, end="")
    else:
        options.write.write_text(page, encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
