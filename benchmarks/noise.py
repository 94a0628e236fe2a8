"""Time the noise samplers: nanoseconds per sample, and what a first and a small draw take.

Run as `python -m benchmarks.noise [--samples N]`. First the bare keystream. That samples have their
laws is tested in tests/dpcore/noise.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from fractions import Fraction

from dptrees.dpcore.noise.exact_sampling import digit_table
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream


def seconds(work: Callable[[], object], runs: int) -> float:
    """The least time of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    samples = parser.parse_args().samples
    stream = public_stream("keystream")
    rate = seconds(lambda: stream.uint64(1 << 15), 100) / (1 << 18)
    print(f"keystream: {1 / rate / 1e9:.1f} GB/s in blocks of 256 KiB")
    print(f"{'law':<9} {'scale':>6} {'ns/sample':>10} {'us/100':>10} {'table ms':>9}")
    for name in ("laplace", "gaussian"):
        for text in ("0.5", "1", "10", "50", "100", "1e4", "1e9", "1e12"):
            scale = Fraction(text)
            law = DiscreteLaplace(scale=scale)
            if name == "gaussian":
                law = DiscreteGaussian(sigma_squared=scale**2)
            digit_table.cache_clear()
            draw = functools.partial(law.sample, public_stream(name, text))
            build = seconds(lambda draw=draw: draw(1), 1)
            small = seconds(lambda draw=draw: draw(100), 30)
            large = seconds(lambda draw=draw: draw(samples), 3)
            times = f"{large / samples * 1e9:>10.2f} {small * 1e6:>10.0f} {build * 1e3:>9.1f}"
            print(f"{name:<9} {text:>6} {times}")


if __name__ == "__main__":
    main()
