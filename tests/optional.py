"""Modules that a test needs and not everybody installs."""

from __future__ import annotations

import os
import shutil
import subprocess
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
