"""Modules that a test needs and not everybody installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import import_module
from typing import Any

import pytest


def table_library(name: str, required_by: str = "DPTREES_REQUIRE_TABLES") -> Any:
    """Import a library of tables; without it a test skips, or fails where a variable is set.

    A library that is installed, but needs one of the system that is not, counts as absent.

    Args:
        name: of the module.
        required_by: the variable of the environment.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: arrow_odbc, by cffi
        if os.environ.get(required_by):
            raise
        pytest.skip(f"{name} cannot be imported: {error}", allow_module_level=True)


def require_driver(name: str) -> None:
    """Skip a test without an ODBC driver, or fail where a variable is set.

    Args:
        name: of the driver, as the driver manager lists it.
    """
    drivers = ""
    if shutil.which("odbcinst"):
        command = ["odbcinst", "-q", "-d"]
        drivers = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if f"[{name}]" not in drivers:
        missing = f"there is no ODBC driver {name}: apt-get install unixodbc odbc-postgresql"
        (pytest.fail if os.environ.get("DPTREES_REQUIRE_ODBC") else pytest.skip)(missing)
