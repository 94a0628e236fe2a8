"""Modules that a test needs and not everybody installs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest


def table_library(name: str, required_by: str = "DPTREES_REQUIRE_TABLES") -> Any:
    """Import a library of tables; without it a test skips, or fails where a variable is set.

    Args:
        name: of the module.
        required_by: the variable of the environment.
    """
    try:
        return import_module(name)
    except ImportError as error:
        if os.environ.get(required_by):
            raise
        pytest.skip(f"{name} cannot be imported: {error}", allow_module_level=True)
