"""Libraries of an extra that cannot be imported: one sentence that says what to install, exit 2."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pytest

from tests.pipelines.conftest import Workspace, assert_refused, update

INPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adbc": ("adbc_driver_manager", {"driver": "sqlite"}),
    "delta": ("deltalake", {"table": "visits"}),
    "iceberg": ("pyiceberg", {"table": "shop.visits"}),
    "postgresql": ("adbc_driver_postgresql", {"table": "visits"}),
}
EXTRAS = {"postgresql": "sql"}
ABSENT = "cannot open shared object file: No such file or directory"
# An error of an import, and what must be installed.
ERRORS: dict[str, tuple[Exception, str]] = {
    "the module": (ModuleNotFoundError("No module named 'x'"), "needs dptrees[{}] installed"),
    "a library of the system": (
        ImportError(f"libodd-2.so.7: {ABSENT}"),
        "needs the system's library libodd-2.so.7 (dptrees[{}] loads it) installed",
    ),
    "another version": (ImportError("undefined symbol"), "needs a working dptrees[{}] installed"),
}


def refuse(patch: pytest.MonkeyPatch, module: str, error: Exception) -> None:
    """Let the import of a module fail."""

    class Refused(MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name == module:
                raise error

    for name in [each for each in sys.modules if f"{each}.".startswith(f"{module}.")]:
        patch.delitem(sys.modules, name)
    patch.setattr(sys, "meta_path", [Refused(), *sys.meta_path])


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("format", INPUTS)
def test_a_table(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, format: str, error: str
) -> None:
    module, settings = INPUTS[format]
    raised, sentence = ERRORS[error]
    refuse(monkeypatch, module, raised)
    if format in ("adbc", "postgresql"):
        monkeypatch.setenv("VISITS", "one line")
        settings = settings | {"connection": "env:VISITS"}
    if "table" not in settings:
        settings = settings | {"query": "SELECT 1 AS x, 'north' AS place"}

    for command in ("check", "release"):
        path = workspace.configure(update(input={"format": format} | settings))
        said = sentence.format(EXTRAS.get(format, format))
        assert_refused(workspace, workspace.run(command, path), said)
