"""Powers and sums of floats, seen while releases are made.

    python -m tests.processors.operators FOLDER [NAME ...]

makes releases of `tests.processors.releases` from sources in which every ``**`` and every call of
``sum`` is replaced by a function that looks at the values, and prints where floats meet what
differs by machine: ``**`` of Python's floats is pow of the C library (even ``x**2``), and sum() of
floats compensates for rounding since Python 3.12. Types are known only when the code runs, so the
lint on the source text (tests/test_arithmetic.py) leaves ``x**2`` to this.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "dptrees"
# Where powers of floats are the business.
EXEMPT = "dptrees.dpcore.arithmetic"
# NumPy squares, inverts and roots arrays by operations that IEEE 754 rounds.
_PLAIN_EXPONENTS = (-1, 0, 0.5, 1, 2)

found: dict[tuple[str, str], str] = {}


def is_plain_power(base: Any, exponent: Any) -> bool:
    """Whether a power is made of whole numbers, fractions or exact operations alone."""
    if isinstance(base, np.ndarray) and base.ndim and np.isscalar(exponent):
        whole = base.dtype.kind in "iub" and not isinstance(exponent, float)
        return whole or exponent in _PLAIN_EXPONENTS
    floats = any(_has_floats(each) for each in (base, exponent))
    trivial = np.isscalar(exponent) and exponent in (0, 1)
    return not floats or trivial or (_is_two(base) and _is_whole(exponent))


def _has_floats(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind in "fc")
    return isinstance(value, float | complex | np.floating)


def _is_two(value: Any) -> bool:
    return np.isscalar(value) and value == 2


def _is_whole(value: Any) -> bool:
    return bool(np.all(np.asarray(value) == np.rint(np.asarray(value, dtype=np.float64))))


def power(base: Any, exponent: Any, site: str) -> Any:
    """Raise to a power, and note the site where the C library does it."""
    if not is_plain_power(base, exponent):
        kinds = f"{type(base).__name__} ** {type(exponent).__name__}"
        found.setdefault((site, "**"), f"{kinds}, such as {exponent!r:.20}")
    elif isinstance(base, int) and isinstance(exponent, int) and exponent < 0 and base != 2:
        found.setdefault((site, "**"), "int ** negative int")
    return base**exponent


def add_up(site: str, values: Iterable[Any], *start: Any, **named: Any) -> Any:
    """Sum values, and note the site where three or more floats are summed."""
    listed = list(values)
    total = builtins.sum(listed, *start, **named)
    inexact = [each for each in listed if type(each) in (float, np.float64)]
    if len(inexact) > 2 and type(total) is float:
        exact = float(np.longdouble(0) + builtins.sum(map(np.longdouble, listed)))
        again = "" if exact == total else ", and another order gives another result"
        found.setdefault((site, "sum"), f"sum of {len(inexact)} floats{again}")
    return total


class _Replaced(ast.NodeTransformer):
    """Powers and sums become calls of this module."""

    def __init__(self, path: str) -> None:
        self._path = path

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow):
            return node
        site = ast.Constant(f"{self._path}:{node.lineno}")
        return self._call("__power__", [node.left, node.right, site], [], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id == "sum"):
            return node
        site = ast.Constant(f"{self._path}:{node.lineno}")
        return self._call("__add_up__", [site, *node.args], node.keywords, node)

    def _call(
        self, name: str, arguments: list[Any], keywords: list[ast.keyword], at: ast.AST
    ) -> ast.AST:
        made = ast.Call(func=ast.Name(name, ast.Load()), args=arguments, keywords=keywords)
        return ast.fix_missing_locations(ast.copy_location(made, at))


class _Source(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = Path(self.get_filename(fullname))
        short = path.relative_to(PROJECT).as_posix()
        tree = _Replaced(short).visit(ast.parse(path.read_bytes()))
        return compile(tree, str(path), "exec", dont_inherit=True)


class _Finder(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] != PACKAGE or fullname.startswith(EXEMPT):
            return None
        spec = super().find_spec(fullname, path, target)
        loader: Loader | None = spec.loader if spec else None
        if spec is None or not isinstance(loader, SourceFileLoader):
            return None
        spec.loader = _Source(loader.name, loader.path)
        return spec


def watch() -> None:
    """From now on modules of the three packages are imported with their operators watched."""
    already = [name for name in sys.modules if name.split(".")[0] == PACKAGE]
    assert not already, f"imported before: {already}"
    builtins.__power__ = power  # type: ignore[attr-defined]
    builtins.__add_up__ = add_up  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]


if __name__ == "__main__":
    watch()
    from tests.processors.releases import NAMES, make

    for _ in make(Path(sys.argv[1]), tuple(sys.argv[2:]) or NAMES):
        pass
    # This module is imported twice: as the program, and by nobody else.
    for (site, kind), reported in sorted(found.items()):
        print(f"{site}: {kind}: {reported}")
