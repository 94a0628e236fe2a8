"""Old names of the packages, for one version: `dpcore` imports `dptrees.dpcore`, with a warning.

Only a checkout has them, where the folders are on the path. An installed dptrees has one name, so
that a project may have a folder `pipelines` of its own.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import CodeType, ModuleType


class _OldNames(MetaPathFinder, Loader):
    """Imports a module of an old package as the module that it is now, never a second time."""

    def __init__(self) -> None:
        self._packages: set[str] = set()
        self._specs: dict[str, ModuleSpec | None] = {}

    def add(self, package: str) -> None:
        """Import the modules of one more package by their old names."""
        self._packages.add(package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a specification whose module exists, or None for another package's."""
        if fullname.partition(".")[0] not in self._packages:
            return None
        # `python -m` makes the origin the name of the program.
        origin = getattr(find_spec(f"dptrees.{fullname}"), "origin", None)
        return spec_from_loader(fullname, self, origin=origin)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its new name."""
        module = import_module(f"dptrees.{spec.name}")
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module ran when it was created. Python replaced its specification."""
        module.__spec__ = self._specs[module.__name__.removeprefix("dptrees.")]

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module for ``python -m`` with its old name."""
        spec = find_spec(f"dptrees.{fullname}")
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"no module dptrees.{fullname}", name=fullname)
        return spec.loader.get_code(spec.name)


_FINDER = _OldNames()


def import_by_new_name(package: str) -> None:
    """Let an old package be the new one, from the first lines of its ``__init__``.

    Args:
        package: the old name, such as ``dpcore``.
    """
    warnings.warn(
        f"{package} is an old name: import dptrees.{package}", FutureWarning, stacklevel=2
    )
    _FINDER.add(package)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    sys.modules[package] = import_module(f"dptrees.{package}")
