"""Warnings that point at the line of the caller's own program."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

# Not all of the folder above: a checkout without links also has programs of its users there.
_OWN = tuple(f"{Path(__file__).parents[2] / name}/" for name in ("pipelines", "transforms"))


def warn_caller(message: str) -> None:
    """Warn at the nearest line that is no part of this library, however deep the call is."""
    level = 1
    while sys._getframe(level).f_code.co_filename.startswith(_OWN):
        level += 1
    warnings.warn(message, stacklevel=level + 1)
