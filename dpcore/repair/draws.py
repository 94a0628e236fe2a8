"""Numbers drawn from a public stream, kept for the next simulation that needs the same ones.

A search simulates many plans of one shape, each from the beginning of one public stream: the same
bits, and from them the same uniform and normal numbers, which a plan's laws then scale. These
numbers take longer to make than to scale, so they are kept by their place in the stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dptrees.dpcore.arithmetic.angles import cos, sin
from dptrees.dpcore.arithmetic.elementary import exp, log
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.laws import DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import RandomStream, public_stream

# Numbers that are kept at most, in all: 64 MiB.
_MOST_KEPT = 2**23
_kept: dict[tuple[str, int, int, int], tuple[Floats, ...]] = {}


class PublicDraws:
    """The draws of a simulation, from the beginning of the stream of a tree's height.

    For planning alone: anybody can compute them.

    Args:
        height: of the tree.

    >>> first, second = PublicDraws(3), PublicDraws(3)
    >>> first.normal(4).tolist() == second.normal(4).tolist()
    True
    """

    def __init__(self, height: int) -> None:
        self._height, self._place = height, 0
        self._stream: RandomStream | None = None
        self._read = 0

    def normal(self, size: int) -> Floats:
        """Return standard normal numbers, (size,), not to be written to."""
        return self._numbers("normal", size, 16 * -(-size // 2), _normal)[0]

    def noise(self, law: NoiseLaw, size: int, shape: tuple[int, ...], *, firsts: bool) -> Floats:
        """Return draws of a law in floating point.

        Args:
            law: of the noise.
            size: how many numbers the stream gives for them.
            shape: of the numbers.
            firsts: whether only the first number along the second axis of the shape is wanted.

        Returns:
            An array of the shape, of length 1 along the second axis for ``firsts``.
        """

        def wanted(numbers: Floats) -> Floats:
            shaped = numbers.reshape(shape)
            return shaped[:, :1] if firsts else shaped

        if not isinstance(law, DiscreteLaplace):
            return np.rint(math.sqrt(law.variance) * wanted(self.normal(size)))
        rate = 1 / float(law.scale)
        logs, signs = map(wanted, self._numbers("laplace", size, 10 * size, _logs_and_signs))
        # P(|X| >= k) = 2 q^k / (1 + q), q = exp(-rate).
        reached = log(2 / (1 + exp(-rate))) - logs
        reached /= rate
        np.ceil(reached, out=reached)
        reached -= 1
        np.maximum(reached, 0.0, out=reached)
        reached *= signs
        return reached

    def _numbers(
        self,
        kind: str,
        size: int,
        length: int,
        make: Callable[[RandomStream, int], tuple[Floats, ...]],
    ) -> tuple[Floats, ...]:
        """Numbers of a kind, made of the next ``length`` bytes of the stream, or kept."""
        key = kind, self._height, self._place, size
        found = _kept.get(key)
        if found is None:
            found = make(self._stream_here(), size)
            self._read = self._place + length
            _keep(key, found)
        self._place += length
        return found

    def _stream_here(self) -> RandomStream:
        """The stream at this place; what was kept has been passed over."""
        if self._stream is None:
            self._stream = public_stream("counts", self._height)
        self._stream.bytes(self._place - self._read)
        return self._stream


def _keep(key: tuple[str, int, int, int], numbers: tuple[Floats, ...]) -> None:
    """Keep numbers, and none of the earlier ones where there would be too many."""
    for each in numbers:
        each.setflags(write=False)
    held = sum(one.size for each in list(_kept.values()) for one in each)
    own = sum(each.size for each in numbers)
    if held + own > _MOST_KEPT:
        _kept.clear()
    if own <= _MOST_KEPT:
        _kept[key] = numbers


def _normal(stream: RandomStream, size: int) -> tuple[Floats]:
    """Box and Muller's pairs."""
    half = -(-size // 2)
    radius = np.sqrt(-2 * log(_uniform(stream, half)))
    angle = 2 * math.pi * _uniform(stream, half)
    return (np.concatenate([radius * cos(angle), radius * sin(angle)])[:size],)


def _logs_and_signs(stream: RandomStream, size: int) -> tuple[Floats, Floats]:
    """Logarithms of uniform numbers, and signs."""
    logs = log(_uniform(stream, size))
    return logs, np.where(stream.uint16(size) & 1, 1.0, -1.0)


def _uniform(stream: RandomStream, size: int) -> Floats:
    """Uniform numbers in (0, 1)."""
    drawn: Floats = ((stream.uint64(size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return drawn
