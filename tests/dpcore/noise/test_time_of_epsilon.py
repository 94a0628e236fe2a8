"""Exact exponentials take a bounded number of steps and bits, whatever the epsilon.

By a table that lists all modules that use them, so that a new one cannot be left out.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest

from dptrees.dpcore.exponential.choice import Weights
from dptrees.dpcore.noise import exact_sampling
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.noise.truncated_laplace import truncated_laplace
from dptrees.dpcore.privacy.partition_selection import SelectionLaw
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.thresholds.plan import ThresholdRound
from tests.order import PROJECT

EPSILONS = [Fraction(10) ** power for power in range(-6, 8)]
DELTA = Fraction(1, 10**9)
MOST_BITS, MOST_CALLS = 4096, 3000


def sparse(epsilon: Fraction) -> object:
    return plan_sparse(["value"], epsilon, DELTA, SUBSTITUTE_ROW).predictions()


def look(epsilon: Fraction) -> object:
    return ThresholdRound(
        cutoff=2,
        search_epsilon=epsilon,
        node_epsilon=epsilon,
        delta=DELTA,
        tau=90,
        acceptance=60,
        estimate=Fraction(80),
    )


def drawn(law: NoiseLaw) -> object:
    exact_sampling.digit_table.cache_clear()
    return law.sample(public_stream("time"), 100)


def group(epsilon: Fraction) -> object:
    return GroupPrivacy(epsilon=epsilon, delta=DELTA, unit=SUBSTITUTE_ROW).row_delta


USES: dict[str, list[Callable[[Fraction], object]]] = {
    "dpcore/noise/truncated_laplace.py": [
        sparse,
        look,
        lambda epsilon: truncated_laplace(epsilon, DELTA).delta(epsilon),
        lambda epsilon: truncated_laplace(epsilon, DELTA).delta(epsilon / 2),
    ],
    "dpcore/noise/exact_sampling.py": [
        lambda epsilon: drawn(DiscreteLaplace(scale=1 / epsilon)),
        lambda epsilon: drawn(DiscreteGaussian(sigma_squared=1 / epsilon)),
    ],
    "dpcore/exponential/choice.py": [Weights],
    "dpcore/privacy/partition_selection.py": [
        lambda epsilon: SelectionLaw(epsilon=epsilon, delta=DELTA).probability([1, 2, 3])
    ],
    "dpcore/privacy/sensitivity.py": [group],
}


def test_every_module_is_listed() -> None:
    found = set()
    for path in sorted((PROJECT / "dpcore").glob("**/*.py")):
        uses = {
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        }
        if {"exp_bounds", "survival_bounds"} & uses:
            found.add(path.relative_to(PROJECT).as_posix())
    assert found == set(USES)


@pytest.mark.parametrize("use", list(itertools.chain(*USES.values())))
def test_steps_are_bounded(
    use: Callable[[Fraction], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more would take minutes: so it ends at the first step beyond."""
    calls, small = [], exact_sampling._small_exp_bounds

    def counted(argument: int, bits: int) -> exact_sampling.Bounds:
        calls.append(bits)
        if bits > MOST_BITS or len(calls) > MOST_CALLS:
            pytest.fail(f"{len(calls)} calls, the last of {bits} bits, for {epsilon}")
        return small(argument, bits)

    monkeypatch.setattr(exact_sampling, "_small_exp_bounds", counted)
    for epsilon in EPSILONS:
        calls.clear()
        try:
            use(epsilon)
        except ValueError:  # it is refused in one sentence
            assert calls == [] or epsilon < 1, epsilon
