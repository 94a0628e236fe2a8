"""What surrounds every public function: checks of argument names, and short tracebacks.

The error for an unknown name suggests the nearest known one. An `Error` is a sentence for the
caller, so its traceback ends at the caller's own line: notebooks and pytest hide the one frame that
is left.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from dptrees.pipelines.python.error import Error

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

# What other libraries call it, or where it belongs here.
_PRIVACY = ("epsilon", "delta", "rho", "neighbors", "unit", "max_rows", "max_keys")
_ELSEWHERE = {
    **dict.fromkeys(_PRIVACY, "it belongs in config['privacy'], or to dptrees.of"),
    "trees": "it belongs in config",
    "seed": "noise has no seed: it is drawn from a release key",
    "random_state": "noise has no seed: it is drawn from a release key",
    "dataset": "it belongs in config, beside ledger",
}


def with_known_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose error for an unknown argument suggests a known one.

    >>> @with_known_keywords
    ... def plan(config, *, units=None): ...
    >>> plan({}, unit=3)
    Traceback (most recent call last):
    TypeError: plan() has no argument 'unit'; did you mean units?
    """
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return function
    known = [name for name in parameters if name != "self"]

    @wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        __tracebackhide__ = True
        for name in named:
            if name not in parameters:
                whose = function.__qualname__.removesuffix(".__init__")
                raise TypeError(_no_argument(whose, name, known)) from None
        try:
            return function(*given, **named)
        except Error as error:
            raise error.with_traceback(None) from None

    return checked


def with_known_fields(cls: C) -> C:
    """Return a dataclass that checks the names of its arguments, as `with_known_keywords`."""
    cls.__init__ = with_known_keywords(cls.__init__)  # type: ignore[misc]
    return cls


def with_known_methods(cls: C) -> C:
    """Return a class whose public methods check the names of their arguments."""
    for name, each in list(vars(cls).items()):
        if inspect.isfunction(each) and (name == "__getitem__" or not name.startswith("_")):
            setattr(cls, name, with_known_keywords(each))
    return cls


def _no_argument(whose: str, name: str, known: Iterable[str]) -> str:
    listed = list(known)
    near = difflib.get_close_matches(name, listed, n=1)
    if near:
        more = f"did you mean {near[0]}?"
    elif name in _ELSEWHERE:
        more = _ELSEWHERE[name]
    else:
        more = f"it has {', '.join(listed)}"
    return f"{whose}() has no argument {name!r}; {more}"
