"""Programs of .ci, which is no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).resolve().parents[1]
CI = PROJECT / ".ci"


def ci_program(name: str) -> ModuleType:
    """Import a program of .ci."""
    made = importlib.util.spec_from_file_location(f"ci_{name}", CI / f"{name}.py")
    assert made is not None and made.loader is not None
    module = sys.modules[f"ci_{name}"] = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module
