"""Time the noise samplers and check what they drew: nanoseconds per sample, chi-squared, variance.

Run as `python -m benchmarks.noise [--samples N]`. The p-value compares the samples with the law's
exact probabilities, outcome by outcome, where these are few enough to count; the last column is
the sample variance's distance from the law's, in standard deviations. First the bare keystream.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy import stats

from dptrees.dpcore.noise.digit_tables import digit_table
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import public_stream

RUNS = 3
SMALL = 100
MOST_OUTCOMES = 20_000


def seconds(work: Callable[[], object], runs: int) -> float:
    """The least time of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def p_value(sample: np.ndarray, law: NoiseLaw) -> float:
    """Chi-squared against the exact law; outcomes expected less than 10 times are put together."""
    end = law.bound(10 / sample.size)
    if end > MOST_OUTCOMES:
        return math.nan
    k = np.arange(-end, end + 1)
    tail = law.survival(end)
    expected = np.concatenate([[tail], law.pmf(k), [tail]]) * sample.size
    observed = np.bincount(np.clip(sample, -end - 1, end + 1) + end + 1, minlength=k.size + 2)
    often = expected >= 10
    if often.sum() < 2:
        return math.nan
    expected = np.append(expected[often], max(expected[~often].sum(), 1e-9))
    observed = np.append(observed[often], observed[~often].sum())
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, expected.size - 1))


def variance_check(sample: np.ndarray, law: NoiseLaw) -> tuple[float, float]:
    """The sample's second moment over the law's variance, and its distance in deviations."""
    squares = sample.astype(np.float64) ** 2 / law.variance
    ratio = float(squares.mean())
    return ratio, (ratio - 1) / float(squares.std()) * math.sqrt(sample.size)


def row(name: str, parameter: str, law: NoiseLaw, samples: int) -> str:
    """One line of the table."""
    digit_table.cache_clear()
    build = seconds(lambda: law.sample(public_stream("build"), 1), 1)
    small = seconds(lambda: law.sample(public_stream("small"), SMALL), 30)
    large = seconds(lambda: law.sample(public_stream(name, parameter), samples), RUNS)
    sample = law.sample(public_stream(name, parameter), samples)
    ratio, deviations = variance_check(sample, law)
    return (
        f"{name:<9} {parameter:>6} {large / samples * 1e9:>10.2f} {small * 1e6:>10.0f} "
        f"{build * 1e3:>9.1f} {p_value(sample, law):>9.4f} {ratio:>9.5f} {deviations:>7.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    samples = parser.parse_args().samples
    stream = public_stream("keystream")
    rate = seconds(lambda: stream.uint64(1 << 15), 100) / (1 << 18)
    print(f"keystream: {1 / rate / 1e9:.1f} GB/s in blocks of 256 KiB")
    print(
        f"{'law':<9} {'scale':>6} {'ns/sample':>10} {f'us/{SMALL}':>10} {'table ms':>9} "
        f"{'p-value':>9} {'variance':>9} {'z':>7}"
    )
    for text in ("0.5", "1", "10", "50", "100", "1e4", "1e9", "1e12"):
        print(row("laplace", text, DiscreteLaplace(scale=Fraction(text)), samples))
    for text in ("0.5", "1", "10", "50", "100", "1e4", "1e9", "1e12"):
        law = DiscreteGaussian(sigma_squared=Fraction(text) ** 2)
        print(row("gaussian", text, law, samples))


if __name__ == "__main__":
    main()
