"""Errors and warnings of the Python API, and the import of its modules on first use.

An `Error` is a sentence for the caller, so its traceback ends at the caller's own line, and
warnings point there too. Modules of Beam import each other in circles: two threads that begin
at two of them get modules that are half imported, so one thread imports at a time.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar

from dptrees.pipelines.process import Later, UserError, quiet_logs
from dptrees.transforms import IMPORT_LOCK
from dptrees.transforms.errors import ReleaseError

# Of errors that are rare.
_unreadable = Later("proof.check:UNREADABLE")
_reason_unreadable = Later("check.verifying:reason_unreadable")
P = ParamSpec("P")
R = TypeVar("R")
Reader = TypeVar("Reader")
_SHOWN = ("__getitem__", "__repr__", "_repr_html_")

_OPTIONS = {
    "use --value": "give a value and its level=",
    "found by --path": "found by their paths, without level=",
    "leave --column out": "leave column() out",
}


class Error(Exception):
    """An error that you can fix.

    The message is one sentence, the same that the command prints. It contains no data.
    """

    # As it is caught.
    __module__ = "dptrees"

    def _render_traceback_(self) -> list[str]:
        """What IPython and notebooks show: the caller's own lines, and no frame of this package."""
        shown, trace = list[TracebackType](), self.__traceback__
        while trace is not None:
            if not trace.tb_frame.f_locals.get("__tracebackhide__"):
                shown.append(trace)
            trace = trace.tb_next
        for each in reversed(shown):
            trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
        shell: Any = import_module("IPython").get_ipython()
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, trace, 0)
        return lines


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose `Error` has a traceback that ends at the caller's own line.

    Notebooks and pytest hide the one frame that is left.
    """

    @wraps(function)
    def shortened(*given: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*given, **named)
        except Error as error:
            raise error.with_traceback(None) from None

    return shortened


def short_tracebacks(cls: type[Reader]) -> type[Reader]:
    """Return a class whose public methods are wrapped by `short_traceback`."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and (name[0] != "_" or name == "__getitem__"):
            setattr(cls, name, short_traceback(method))
    return cls


def reports_edits(cls: type[Reader]) -> type[Reader]:
    """Let the public methods and properties of a class raise `Error` where its release, in
    `_folder`, is damaged or was edited."""
    for name, method in list(vars(cls).items()):
        if name[0] == "_" and name not in _SHOWN:
            continue
        if isinstance(method, FunctionType):
            setattr(cls, name, _guarded(method))
        elif isinstance(method, property):
            setattr(cls, name, property(_guarded(method.fget)))
    return cls


def _guarded(method: Any) -> Any:
    @wraps(method)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        with user_errors(release=self._folder.path):
            return method(self, *args, **options)

    return guarded


@contextmanager
def user_errors(*, is_query: bool = False, release: str | None = None) -> Iterator[None]:
    """Convert every error of a user to an `Error`.

    Args:
        release: the folder that is read: a failure is an error of a user if it was edited.
        is_query: whether queries are answered, which dpcore refuses by a ValueError. Elsewhere a
            ValueError is a fault of the program.

    >>> with user_errors(is_query=True):
    ...     raise ValueError("range: 5 is above 1")
    Traceback (most recent call last):
    dptrees.Error: range: 5 is above 1
    """
    try:
        yield
    except ReleaseError as error:
        raise Error(error.sentence) from None
    except UserError as error:
        raise Error(str(error)) from None
    except Exception as error:
        if not isinstance(error, _unreadable.load()):
            raise
        if is_query and isinstance(error, ValueError):
            raise Error(_in_python(str(error))) from None
        reason = None if release is None else _reason_unreadable(release)
        if reason is None:
            raise
        raise Error(reason) from None


def _in_python(sentence: str) -> str:
    """Replace options of the command in a sentence by arguments of Python.

    >>> _in_python("path: tree age is no hierarchy; use --value")
    'path: tree age is no hierarchy; give a value and its level='
    """
    for option, here in _OPTIONS.items():
        sentence = sentence.replace(option, here)
    return sentence


# Not all of the folder above: a checkout without links also has programs of its users there.
_OWN = tuple(f"{Path(__file__).parents[2] / name}/" for name in ("pipelines", "transforms"))


def warn_caller(message: str) -> None:
    """Warn at the nearest line that is no part of this library, however deep the call is."""
    level = 1
    while sys._getframe(level).f_code.co_filename.startswith(_OWN):
        level += 1
    warnings.warn(message, stacklevel=level + 1)


def quiet_import(module: str = "making") -> ModuleType:
    """Return a module of this package, imported without warnings of packages.

    Args:
        module: its name.
    """
    place = f"dptrees.pipelines.python.{module}"
    with IMPORT_LOCK:
        return import_module(place) if place in sys.modules else _imported(place)


def _imported(place: str) -> ModuleType:
    collects = gc.isenabled()
    # An import leaves no cycles to collect, and looking for them takes a tenth of its time.
    gc.disable()
    try:
        with quiet_logs(logging.WARNING):
            return import_module(place)
    finally:
        if collects:
            _count_as_old()
            gc.enable()


def _count_as_old() -> None:
    """Move all objects to the oldest generation of the garbage collector.

    Otherwise the next small collection would scan all objects that an import made.
    """
    if gc.get_freeze_count() == 0:  # else the caller has frozen objects, which stay frozen
        gc.freeze()
        gc.unfreeze()
