"""The ``d`` of SVG paths, in a square of 1,000 by 1,000 whose origin is above on the left."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers

SIDE = 1_000


def scaled(values: Floats, low: float, high: float) -> Integers:
    """Where values lie from left to right, in whole units; those outside, a little beyond."""
    found = (np.asarray(values, np.float64) - low) / (high - low) * SIDE
    bounded = np.nan_to_num(np.clip(found, -SIDE, 2 * SIDE))
    whole: Integers = np.round(bounded).astype(np.int64)
    return whole


def lifted(values: Floats, low: float, high: float) -> Integers:
    """Where values lie from above, in whole units."""
    return SIDE - scaled(values, low, high)


def line(x: Integers, y: Integers) -> str:
    """A line through points; those that lie on one with their neighbors are left out.

    >>> line(np.array([0, 5, 10]), np.array([9, 9, 4]))
    'M0 9l5 0 5-5'
    """
    if not len(x):
        return ""
    return f"M{x[0]} {y[0]}{_steps(x, y)}"


def band(x: Integers, low: Integers, high: Integers) -> str:
    """The surface between two lines over the same places.

    >>> band(np.array([0, 9]), np.array([8, 8]), np.array([2, 2]))
    'M0 2l9 0 0 6-9 0z'
    """
    if not len(x):
        return ""
    around = np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])
    return f"{line(*around)}z"


def bars(left: Integers, right: Integers, top: Integers, bottom: int = SIDE) -> str:
    """Rectangles that are on one line.

    >>> bars(np.array([0]), np.array([4]), np.array([990]))
    'M0 990h4v10h-4z'
    """
    return boxes(zip(left.tolist(), right.tolist(), top.tolist(), strict=True), bottom)


def boxes(sides: Iterable[tuple[int, int, int]], bottom: int) -> str:
    """Rectangles of their left, right and upper sides."""
    return "".join(
        f"M{left} {top}h{right - left}v{bottom - top}h{left - right}z" for left, right, top in sides
    )


def rectangles(left: Integers, right: Integers, top: Integers, bottom: Integers) -> str:
    """Rectangles anywhere."""
    sides = np.stack([left, right, top, bottom], axis=1).tolist()
    return "".join(f"M{x} {y}h{end - x}v{below - y}h{x - end}z" for x, end, y, below in sides)


def whiskers(x: Integers, low: Integers, high: Integers) -> str:
    """Vertical strokes.

    >>> whiskers(np.array([5]), np.array([20]), np.array([10]))
    'M5 20V10'
    """
    sides = zip(x.tolist(), low.tolist(), high.tolist(), strict=True)
    return "".join(f"M{place} {start}V{end}" for place, start, end in sides)


def _steps(x: Integers, y: Integers) -> str:
    """The rest of a line, in steps from point to point."""
    text = "l"
    for across, down in zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True):
        if across or down:
            text += f"{'' if text == 'l' or across < 0 else ' '}{across}"
            text += f"{'' if down < 0 else ' '}{down}"
    return "" if text == "l" else text
