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

from benchmarks.audit import black_box
from benchmarks.audit.attack import FAULTS, NOTHING, Attack, attacks
from benchmarks.audit.choices import audit_bounds, audit_value_bounds
from benchmarks.audit.exact import KINDS, MEASURES, Finding, audit
from benchmarks.audit.published import audit_sparse, audit_thresholds
from benchmarks.audit.stored import ExactFinding, Findings
from benchmarks.audit.tables import WORKLOADS, audit_columns, audit_tables
from benchmarks.audit.targets import TARGETS
from benchmarks.audit.units import (
    KINDS_OF_UNITS,
    UNITS,
    audit_selection,
    audit_series,
    audit_sparse_units,
    audit_threshold_units,
    audit_units,
)
from benchmarks.audit.whole import audit_whole
from benchmarks.harness import holds, number, section, table

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

Three audits try to prove the guarantee of a release wrong. This page is for everyone who wants to
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
- **The attack** needs an event with a probability of some percent on both data sets. It detects
  noise that is a third too small. It does not detect noise that is 2 % too small, or a delta of
  1e-6. It attacks one tiny tree of each kind. A bound below the claim is the expected result of a
  correct release, and no measure of its privacy.
- **Not in section 1**: adaptive trees over domains of values or labels, exponential quantiles,
  matrix mechanisms ("factorised"), and series that protect a unit's rows of one period. Their exact
  losses and sensitivities are compared with brute force in `tests/dpcore/adaptive/test_privacy.py`,
  `exponential/test_privacy.py`, `factorised/test_sensitivity.py` and `tests/dpcore/series`. Section
  2 attacks all of them.
- **Wide tables** are audited under epsilon and rho, not under (epsilon, delta). That follows from
  rho by a conversion, which section 1 tests with other kinds. Their target in section 2 attacks the
  noise of one pair. No tiny table loses nearly all of its budget by its choices alone, because
  their scores move in opposite directions. So only section 1 can detect a fault in their rate.
- **Means and numbers of different values** are not attacked in section 2. Their noise is compared
  with its exact law in `tests/dpcore/mean` and `tests/dpcore/distinct`.
- **A delta** is examined in the exact audit only, which enumerates the outcomes of a sparse tree or
  a search. Section 2 attacks private keys at a delta of 5 %, where one decision shows most.
- All audits assume that the key is secret and the keystream random: the guarantee is
  computational. Neither examines running times, sizes of files, or other actions of an operator.
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


def value_bound_findings(plans: int) -> list[tuple[str, str, Finding]]:
    """The same of the choice of `lower: auto` and `upper: auto`."""
    return [
        ("bounds of values", measure, audit_value_bounds(measure, plans=plans, pairs=8))
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
    "exact, bounds of values": value_bound_findings,
    "exact, means and different values": column_findings,
    "exact, series": series_findings,
}


def summary_section(exact: Sequence[ExactFinding], attacked: Sequence[Attack]) -> str:
    """Both audits in one table: what was tried, what it found, and what it would have found."""
    pairs = sum(each.pairs for _, _, each in exact)
    largest = max((float(each.ratio) for _, _, each in exact), default=0.0)
    leaks = sum(each.leaks for _, _, each in exact)
    right = [each for each in attacked if each.fault == NOTHING]
    rejected = sum(each.is_rejected for each in right)
    found = "found" if rejected or leaks or largest > 1 + ROUNDING else "never found"
    rows = [
        (
            "1. Exact losses: all noise and data known",
            f"{pairs:,} pairs of neighboring tables, {len(exact)} kinds of release and claim",
            f"largest loss {largest:.4f} of the claim; {leaks} leaks",
            "a loss above the claim (under epsilon and delta by 0.2 % or more), or an exact number "
            "in a release, in these pairs",
        ),
        (
            "2. Attacks: released numbers alone",
            f"{len(right)} kinds of release, {len(attacked)} attacks",
            f"{rejected} of {len(right)} correct releases rejected; {_detected(attacked)}",
            "noise a third too small, or a budget or a row counted twice, if the attack is "
            "strong enough for that kind of release",
        ),
    ]
    return section(
        "Summary",
        table(("audit", "tried", "found", "would have found"), rows).replace("---:", "---"),
        f"""A correct release loses more than it claims, or shows an exact number: {found}. The
        planted faults show how much these attacks can detect. A better attack may detect more of
        them, and the exact losses find much smaller faults. No audit shows that a guarantee holds
        ([limits](#limits-of-these-audits)).""",
    )


def _detected(attacked: Sequence[Attack]) -> str:
    """Return how many planted faults the attacks detected, by fault."""
    parts = []
    for fault in FAULTS:
        verdicts = [each.is_rejected for each in attacked if each.fault == fault]
        if fault != NOTHING and verdicts:
            parts.append(f"{fault}: {sum(verdicts)} of {len(verdicts)} detected")
    return "; ".join(parts)


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
        """**"Means"** (`objective: mean`) **and "different values"** (`kind: distinct`) differ in a
        row or in a unit of up to nine rows, with and without keys. Values are at the bounds, beyond
        them, and missing.""",
        """**"Series"** (`unit: per_series`) have two to five periods. Data sets differ in one unit
        that has rows in some or all of them, in more or in fewer than the bound. Every run is made
        from its rows and from the sealed state of the run before, and the losses of all runs are
        added up. Noise that a later run computes again counts once, and must be the same. Trees are
        ordered, boxes of all rows so far (with each way to store their counts), means or numbers of
        different values.""",
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
        "2. Attacks on released numbers",
        """This audit sees only released numbers, as any reader does. It makes many releases of each
        of two neighboring data sets in memory, each with a fresh key. One half of them serves to
        find an event that separates the two data sets: a threshold of one number, of a linear
        statistic, or of the sum of log ratios of frequencies. On the other half Clopper and Pearson
        bound the probability of the event. This gives a lower bound of the loss: for epsilon ln((P
        - delta) / Q), for rho as for Gaussian noise (z(P) - z(Q))^2 / 2.""",
        f"""A claim below its bound is false: "found". The faults are planted: noise of a scale 30 %
        too small, noise of a budget that is spent twice, and the differing row counted twice. All
        {len(found)} bounds of the table hold together with a probability of
        {100 * (1 - sum(each.alarm for each in found)):.2f} % (by Bonferroni; each fails with a
        probability of at most {ALARM:g} / n, where n bounds were planned when it was made).""",
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
    attacked = [found.attacks[each] for each in _EVERY if each in found.attacks]
    return "\n".join(
        (
            HEADER.format(quick=QUICK if quick else ""),
            summary_section(exact, attacked),
            exact_section(exact),
            attack_section(attacked),
            *([] if quick else [black_box.page(black_box.stored())]),
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
