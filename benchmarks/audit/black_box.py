"""A black box: a release of a small table and one of its neighbor, made 10,000 times each, for each
kind of mechanism, from configurations as users write them.

    python -m benchmarks.audit.black_box [--only KIND ...] [--write docs/audit.md]

Each release has a key of its own. The plan is the product's own for the configuration, and the
rows go through the product's own reading of columns, bounding of units, counting, noise and
estimation (`dpcore.release.released.release_rows`). Beam alone is left out: it would take 0.08 s a
release.
Half of the releases choose the event that distinguishes the two tables best; the other half bound
its probabilities from both sides (Clopper and Pearson), and so epsilon from below. A bound above
the claim is a false alarm with a probability of 1e-6 for all kinds together. Each kind is made with
half of its noise, too: the audit must find that.

Sources: Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020 (audits by hypothesis tests).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import yaml
from scipy import stats

from benchmarks.audit.recording import LAWS
from benchmarks.harness import number, section, table
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.choices.key_selection import SelectionPlan
from dptrees.dpcore.choices.unit_bounds import BoundPlan
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_rows
from dptrees.dpcore.tables.plan import MarginalsPlan
from dptrees.pipelines.config.configuration import load_configuration

RELEASES, ALARM = 10_000, 1e-6
STORED = Path(__file__).with_name("black_box.json")
# Rows of a table that are looked at.
_ROWS = 12
# Thresholds that are tried of each statistic, and groups of a number's values.
THRESHOLDS, GROUPS = 60, 16

# --- configurations ---

NUMBER = {"column": "x", "type": "integer", "lower": 0, "upper": 4}
WIDE = {"column": "x", "type": "integer", "lower": 0, "upper": 64}
# One person's row, or rows, more.
FEW = {"x": [0, 1, 2, 3], "place": ["a", "b", "a", "b"], "id": [0, 1, 2, 3]}


class Kind(NamedTuple):
    """A configuration to attack.

    Attributes:
        trees: section of the configuration.
        privacy: beside the neighboring relation.
        more: the rows that the second table has beside the first one.
        rows: the first table.
    """

    trees: list[dict[str, Any]]
    privacy: dict[str, Any]
    more: dict[str, list[Any]]
    rows: dict[str, list[Any]] = FEW


ONE_ROW = {"x": [2], "place": ["a"], "id": [9]}
SAME = {"x": [2] * 5, "place": ["a"] * 5, "id": [9] * 5}
MANY = {"x": [7] * 20, "place": ["a"] * 20, "id": list(range(20))}
NEW = {"x": [2], "place": ["c"], "id": [9]}
PURE, RHO, DELTA = {"epsilon": 1}, {"rho": 0.5}, {"epsilon": 1, "delta": 0.01}
PLACES = {"column": "place", "keys": ["a", "b"]}
PLACE_TREE = {"domain": {"kind": "hierarchy", "columns": ["place"], "leaves": [["a"], ["b"]]}}
ERRORS = {"metric": "alpha_rmse", "alpha": 0.97, "rows_at_most": 10}
SIGNED = {"column": "x", "lower": -2, "upper": 2}
BOX = {"domain": {"kind": "hypercube", "columns": [NUMBER]}, "rows": 10}
ADAPTIVE = {"mechanism": "adaptive"}
KINDS = {
    "ordered, epsilon": Kind([{"domain": NUMBER}], PURE, ONE_ROW),
    "ordered, rho": Kind([{"domain": NUMBER}], RHO, ONE_ROW),
    "ordered, epsilon and delta": Kind([{"domain": NUMBER}], DELTA, ONE_ROW),
    "ordered, by key": Kind([{"domain": NUMBER, "group_by": PLACES}], PURE, ONE_ROW),
    "units of three rows": Kind([{"domain": NUMBER}], PURE | {"unit": "id", "max_rows": 3}, SAME),
    "means": Kind([{"domain": NUMBER, "objective": "mean"}], PURE, ONE_ROW),
    "median": Kind([{"domain": WIDE, "objective": "quantiles", "quantiles": [0.5]}], PURE, ONE_ROW),
    "categories": Kind([PLACE_TREE], PURE, ONE_ROW),
    "sums": Kind([PLACE_TREE | {"measure": SIGNED}], PURE, ONE_ROW),
    "hierarchy, adaptive": Kind([PLACE_TREE | ADAPTIVE | {"guess": {"rows": 5}}], PURE, ONE_ROW),
    "thresholds": Kind(
        [PLACE_TREE | {"mechanism": "thresholds", "objective": "relative"} | ERRORS],
        {"epsilon": 20, "delta": 0.3},
        ONE_ROW,
    ),
    "matrix mechanism": Kind([{"domain": NUMBER, "mechanism": "factorised"}], RHO, ONE_ROW),
    "adaptive": Kind([{"domain": WIDE} | ADAPTIVE], PURE, ONE_ROW),
    "distinct values": Kind(
        [{"domain": {"kind": "distinct", "column": "place"}, "max_values": 1}], PURE, NEW
    ),
    # So many rows that the noisy count is published.
    "sparse": Kind(
        [{"domain": {"kind": "sparse", "columns": ["place"]}}],
        DELTA,
        {"x": [7], "place": ["a"], "id": [99]},
        MANY,
    ),
    "box": Kind([BOX], PURE, ONE_ROW),
    "box, sketch": Kind([BOX | {"counts": "sketch", "memory": "64 KiB"}], PURE, ONE_ROW),
    "box, adaptive": Kind([BOX | ADAPTIVE], PURE, ONE_ROW),
    "wide table": Kind(
        [{"domain": {"kind": "table", "columns": [NUMBER, WIDE | {"column": "id"}]}}],
        PURE,
        ONE_ROW,
    ),
    # First stages have a tenth and a twentieth of the budget.
    "private keys": Kind(
        [{"domain": NUMBER, "group_by": {"column": "place", "keys": "private"}}],
        {"epsilon": 10, "delta": 0.1, "unit": "id", "max_rows": 1, "max_keys": 1},
        ONE_ROW,
        {"x": [0], "place": ["a"], "id": [0]},
    ),
    # So many rows that one more decides whether they are tolerated beyond a bound.
    "upper: auto": Kind(
        [{"domain": WIDE | {"upper": "auto"}}],
        {"epsilon": 20},
        {"x": [7], "place": ["a"], "id": [99]},
        MANY,
    ),
    "max_rows: auto": Kind(
        [{"domain": NUMBER}], {"epsilon": 20, "unit": "id", "max_rows": "auto"}, SAME
    ),
}


# --- what releases show ---


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a release claims.

    Args:
        measure: "epsilon" or "rho".
        amount: of it.
        delta: beside an epsilon; 0 without.
    """

    measure: str
    amount: Fraction
    delta: Fraction = Fraction(0)

    def lower_bound(self, likelier: float, unlikelier: float) -> float:
        """What is lost at least, if an event has at least the one probability on one data set and
        at most the other on its neighbor.

        An epsilon from P <= exp(epsilon) Q + delta. A rho as of Gaussian noise: if some event has P
        and Q under two normal laws, these are mu = z(P) - z(Q) apart or more, and rho = mu^2 / 2
        (Dong, Roth, Su 2022, Section 2).

        >>> round(Claim(measure="epsilon", amount=Fraction(1)).lower_bound(0.6, 0.2), 3)
        1.099
        >>> round(Claim(measure="rho", amount=Fraction(1)).lower_bound(0.8413, 0.1587), 2)
        2.0
        """
        if self.measure == "rho":
            apart = float(stats.norm.ppf(likelier) - stats.norm.ppf(unlikelier))
            return max(0.0, apart) ** 2 / 2
        gained = likelier - float(self.delta)
        return max(0.0, math.log(gained / unlikelier)) if gained > 0 else 0.0

    def __str__(self) -> str:
        beside = f", delta {float(self.delta):g}" if self.delta else ""
        return f"{self.measure} {float(self.amount):g}{beside}"


@contextmanager
def smaller_noise(factor: Callable[[Any], Fraction]) -> Iterator[None]:
    """While this lasts, all noise is of the law whose scale is multiplied by ``factor(law)``."""
    with ExitStack() as stack:
        inside = [False]  # a truncated law draws from another law, which is not to shrink again
        for law_type in LAWS:
            own = law_type.sample

            def sample(law: Any, stream: Any, size: int, own: Any = own) -> Any:
                if inside[0]:
                    return own(law, stream, size)
                inside[0] = True
                try:
                    return own(_scaled(law, factor(law)), stream, size)
                finally:
                    inside[0] = False

            stack.enter_context(patch.object(law_type, "sample", sample))
        # Choices by weight add no noise: their rate is what a scale is the inverse of.
        one = DiscreteLaplace(scale=Fraction(1))
        for plan_type, name in ((ExponentialPlan, "rate"), (MarginalsPlan, "choice_rate")):
            stack.enter_context(
                patch.object(plan_type, name, _faster(plan_type, name, factor(one)))
            )
        rate = BoundPlan.__dict__["rate"].func
        faster = property(lambda plan: rate(plan) / factor(one))
        stack.enter_context(patch.object(BoundPlan, "rate", faster))
        # A coin that decides about a key has an epsilon in place of a scale.
        law = SelectionPlan.__dict__["law"].func
        bolder = lambda plan: replace(law(plan), epsilon=law(plan).epsilon / factor(one))  # noqa: E731
        stack.enter_context(patch.object(SelectionPlan, "law", property(bolder)))
        yield


def _faster(plan_type: type, name: str, factor: Fraction) -> Callable[[Any, Any], Fraction]:
    """A plan's method that gives the rate of a choice, with a rate divided by a factor."""
    rate = getattr(plan_type, name)
    return lambda plan, choice: rate(plan, choice) / factor


def _scaled(law: Any, factor: Fraction) -> Any:
    if isinstance(law, DiscreteGaussian):
        return replace(law, sigma_squared=law.sigma_squared * factor)
    return replace(law, scale=law.scale * factor)


Read = Callable[[Floats], Floats]


def learned(one: Floats, two: Floats) -> Read:
    """Statistics of released numbers, learned from releases of two tables, (releases, numbers):
    each number, a linear statistic of all, and the sum of the log ratios of their frequencies."""
    spread = np.atleast_2d(np.cov(np.concatenate([one - one.mean(0), two - two.mean(0)]).T))
    ridge = 1e-6 * max(1.0, float(np.trace(spread))) * np.eye(one.shape[1])
    weights = np.linalg.solve(spread + ridge, two.mean(0) - one.mean(0))
    columns = [_log_ratios(a, b) for a, b in zip(one.T, two.T, strict=True)]

    def read(numbers: Floats) -> Floats:
        ratios = [
            own[np.clip(np.searchsorted(values, column), 0, len(values) - 1)]
            for column, (values, own) in zip(numbers.T, columns, strict=True)
        ]
        # Each number's two columns, estimate and integer, show nearly the same: also the half.
        half = max(1, len(ratios) // 2)
        sums = [np.sum(ratios, axis=0), np.sum(ratios[:half], axis=0)]
        return np.column_stack([numbers, numbers @ weights, *sums])

    return read


def _log_ratios(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """The values that a number took, in a few groups, and the log ratio of each; 0 for a number
    that does not distinguish the two, whose ratios would be chance."""
    together = np.sort(np.concatenate([one, two]))
    values = np.unique(together)
    if len(values) > GROUPS:
        values = np.unique(together[np.linspace(0, len(together) - 1, GROUPS).astype(int)])
    places = [np.searchsorted(values, np.minimum(each, values[-1])) for each in (one, two)]
    counts = np.array([np.bincount(own, minlength=len(values)) for own in places])
    seen = counts[:, counts.sum(axis=0) > 0]
    differs = seen.shape[1] > 1 and stats.chi2_contingency(seen).pvalue < 1e-3
    ratios = np.log(counts[1] + 3.0) - np.log(counts[0] + 3.0)
    return values, ratios if differs else np.zeros(len(values))


def limits(hits: int, runs: int, alarm: float) -> tuple[float, float]:
    """Clopper and Pearson: the probability is below the first, or above the second, with a
    probability of at most ``alarm`` each.

    >>> limits(0, 100, 0.05)[1] < 0.03, limits(100, 100, 0.05)[0] > 0.97
    (True, True)
    """
    low = float(stats.beta.ppf(alarm, hits, runs - hits + 1)) if hits else 0.0
    high = float(stats.beta.isf(alarm, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def lower_bound(claim: Claim, one: Floats, two: Floats, alarm: float) -> float:
    """A bound of what is lost between two tables, too large with a probability of ``alarm``.

    Half of the releases choose the event: a statistic at, above or below a threshold, and on which
    table it is likelier. The other half is independent, so the bound holds whatever was chosen.

    Args:
        claim: in whose measure.
        one, two: (releases, numbers) of each table, independent.
        alarm: the probability that the bound does not hold, at most; two limits may fail.
    """
    half = len(one) // 2
    read = learned(one[:half], two[:half])

    def bound_of(hits: Sequence[int], runs: int, second: bool) -> float:
        likelier, other = (hits[1], hits[0]) if second else hits
        low, high = limits(likelier, runs, alarm / 2)[0], limits(other, runs, alarm / 2)[1]
        return claim.lower_bound(low, high)

    best, result = -1.0, 0.0
    for a, b in zip(read(one).T, read(two).T, strict=True):
        both = np.concatenate([a[:half], b[:half]])
        thresholds = np.unique(both)
        if len(thresholds) > THRESHOLDS:
            thresholds = np.quantile(both, np.linspace(0.02, 0.98, THRESHOLDS))
        for threshold in thresholds.tolist():
            reached = [each >= threshold for each in (a, b)]
            for happens in (reached, [~each for each in reached]):
                hits = [int(each[:half].sum()) for each in happens]
                for second in (True, False):
                    found = bound_of(hits, half, second)
                    if found > best:
                        judged = [int(each[half:].sum()) for each in happens]
                        best, result = found, bound_of(judged, len(one) - half, second)
    return result


# --- the audit ---


def planned(kind: Kind) -> ReleasePlan:
    """The plan that `dptrees release` makes of a configuration."""
    settings = {
        "release": "audit",
        "input": {"format": "parquet", "path": "rows.parquet"},
        "output": "out",
        "key_file": "release.key",
        "privacy": {"neighbors": "add_remove"} | kind.privacy,
        "trees": [{"name": "tree"} | each for each in kind.trees],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.yaml"
        path.write_text(yaml.safe_dump(settings))
        plan = load_configuration(str(path), {}).plan()
    # Private keys and chosen bounds are a release of their own, before that of the trees.
    stage = plan.selection if plan.bounds is None else plan.bounds.plan
    return plan if stage is None else stage


def claim_of(plan: ReleasePlan) -> Claim:
    """What the release claims."""
    if plan.promised is not None:
        epsilon, delta = plan.promised
        return Claim(measure="epsilon", amount=epsilon, delta=delta)
    return Claim(measure=plan.budget.measure.value, amount=plan.budget.amount)


def numbers(release: ReleaseReader) -> Floats:
    """Read the number of rows of each table, and the numbers in its first rows."""
    (question,) = release.plan.questions
    parts = [(each.kind, each.tree, each.key, each.index) for each in question.parts()]
    tables = [*(release.part(*each) for each in parts), *release.concluded.values()]
    found = []
    for each in tables:
        found.append(np.array([len(each)], float))
        for field in each.schema:
            if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
                values = each[field.name].cast(pa.float64(), safe=False).fill_null(-1.0)
                values = np.asarray(values)[:_ROWS]
                found.append(np.pad(values, (0, _ROWS - len(values)), constant_values=-1.0))
    return np.concatenate(found)


def made(plan: ReleasePlan, rows: pa.RecordBatch, name: str, releases: int) -> Floats:
    """The numbers of independent releases of a table, (releases, numbers)."""
    keys = (
        ReleaseKey(hashlib.sha256(f"black box of {name}: {each}".encode()).digest())
        for each in range(releases)
    )
    return np.array([numbers(release_rows(plan, [rows], key)) for key in keys])


def half(law: Any) -> Fraction:
    """The planted fault: half of the scale."""
    return Fraction(1, 4) if isinstance(law, DiscreteGaussian) else Fraction(1, 2)


def bound(name: str, fault: Callable[[Any], Fraction] | None, releases: int) -> float:
    """A lower bound of what the releases of a kind lose, as a fraction of their claim."""
    kind = KINDS[name]
    plan = planned(kind)
    more = {column: values + kind.more[column] for column, values in kind.rows.items()}
    tables = [pa.RecordBatch.from_pydict(each) for each in (kind.rows, more)]
    with nullcontext() if fault is None else smaller_noise(fault):
        one, two = (
            made(plan, rows, f"{name}, {fault is None}, {which}", releases)
            for which, rows in enumerate(tables)
        )
    claim = claim_of(plan)
    # A number that is always the same distinguishes nothing.
    kept = np.concatenate([one, two]).std(axis=0) > 0
    if not kept.any():
        return 0.0
    found = lower_bound(claim, one[:, kept], two[:, kept], ALARM / len(KINDS))
    return found / float(claim.amount)


def audited(name: str, releases: int) -> dict[str, Any]:
    """The entry of a kind."""
    began = time.monotonic()
    entry = {
        "claim": str(claim_of(planned(KINDS[name]))),
        "releases": releases,
        "correct": bound(name, None, releases),
        "half": bound(name, half, releases),
    }
    print(f"{name}: {entry}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return entry


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The section of docs/audit.md."""
    rows = [
        [
            *(name, each["claim"], f"{each['releases']:,}", number(each["correct"])),
            *(number(each["half"]), "found" if each["half"] > 1 else "not found"),
        ]
        for name, each in found.items()
    ]
    head = ["configuration", "claim", "releases", "correct", "half the noise", "fault"]
    above = [name for name, each in found.items() if each["correct"] > 1]
    missing = [name for name in KINDS if name not in found]
    text = """
        Each configuration, as a user writes it, is planned by dptrees and released this often for
        a table of a few rows, and as often for one with one person more, each time under a new key.
        Everything but Beam takes part: reading of columns, bounding of units, counting, noise and
        estimation. Of private keys and `auto` bounds the first stage is released, which chooses
        them. Half of the releases choose the event that distinguishes the tables best, and the
        others bound its probabilities. The columns are lower bounds of what is lost, as a fraction
        of the claim, of the correct program and of one with half the noise. A bound above 1 is a
        false alarm with a probability of 1e-6 in all. A choice among several bounds loses at most
        half of its claim on such tables, so half of its noise cannot show. `make black-box` writes
        this section."""
    verdict = f"Correct releases above their claim: {', '.join(above) or 'none'}."
    if missing:
        verdict += f" Not run: {', '.join(missing)}."
    return section("2. A black box of configurations", text, table(head, rows), verdict)


def stored() -> dict[str, dict[str, Any]]:
    """The findings of earlier runs, by kind."""
    known = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {name: known[name] for name in KINDS if name in known}


def write(path: Path, text: str) -> None:
    """Put the section before the limits of the page, in place of an earlier one."""
    before, _, rest = path.read_text().partition("## Limits of these audits")
    before = before.partition("## 2. A black box")[0]
    path.write_text(f"{before}{text}\n## Limits of these audits{rest}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit; 1 if a correct release is above its claim, or a planted fault is not found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--only", nargs="*", choices=list(KINDS))
    parser.add_argument("--write", type=Path, help="docs/audit.md; the findings are kept, too")
    chosen = parser.parse_args(arguments)
    found = stored() if chosen.write else {}
    for name in list(KINDS) if chosen.only is None else chosen.only:
        found[name] = audited(name, chosen.releases)
        if chosen.write:
            found = {each: found[each] for each in KINDS if each in found}
            STORED.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.write:
        write(chosen.write, page(found))
    else:
        print(page(found))
    return int(any(each["correct"] > 1 for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
