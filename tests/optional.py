"""Modules that a test needs and not everybody installs."""

from __future__ import annotations

import os
from typing import Any

import pytest


def table_library(name: str) -> Any:
    """A library of tables; without it the test skips, or fails where DPTREES_REQUIRE_TABLES is set.

    Args:
        name: of the module.
    """
    if os.environ.get("DPTREES_REQUIRE_TABLES"):
        __import__(name)
    return pytest.importorskip(name)
