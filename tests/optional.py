"""Modules that a test needs and not everybody installs."""

from __future__ import annotations

import os
from typing import Any

import pytest


def table_library(name: str, required_by: str = "DPTREES_REQUIRE_TABLES") -> Any:
    """A library of tables; without it a test skips, or fails where a variable is set.

    Args:
        name: of the module.
        required_by: the variable of the environment.
    """
    if os.environ.get(required_by):
        __import__(name)
    return pytest.importorskip(name)
