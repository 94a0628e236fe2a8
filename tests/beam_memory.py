"""What Beam works out anew for every pipeline, remembered: a third of what a small release costs.

A pipeline makes 400 parsers of options, all of the same few classes and flags, and requests the
signatures of the same methods 7,000 times. Both depend on their arguments alone.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType, MethodType
from typing import Any

import pytest

Signature = tuple[list[str], list[Any]]


def remember(patch: pytest.MonkeyPatch) -> None:
    """Let Beam look up what it has found before.

    Args:
        patch: what undoes it.

    Raises:
        AttributeError: this version of Beam has other names.
    """
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms import core

    patch.setattr(PipelineOptions, "__init__", _options(PipelineOptions.__init__))
    patch.setattr(core, "get_function_args_defaults", _methods(core.get_function_args_defaults))


def _options(init: Callable[..., None]) -> Callable[..., None]:
    @cache
    def parsed(kind: type, flags: tuple[str, ...]) -> Namespace:
        made = kind.__new__(kind)
        init(made, list(flags))
        return made._visible_options

    @wraps(init)
    def remembered(options: Any, flags: Any = None, **overrides: Any) -> None:
        if not isinstance(flags, list):  # also None, for the arguments of the process
            return init(options, flags, **overrides)
        found = vars(parsed(type(options), tuple(flags)))
        # Options of several values are lists, which views share and change.
        own = {name: list(v) if isinstance(v, list) else v for name, v in found.items()}
        options._flags = flags
        options._visible_options = Namespace(**own)
        options._all_options = overrides
        for name in options._visible_option_list():
            overrides.setdefault(name, own[name])
        return None

    return remembered


def _methods(signature: Callable[[Any], Signature]) -> Callable[[Any], Signature]:
    of_function = cache(signature)

    @wraps(signature)
    def remembered(called: Any) -> Signature:
        function = getattr(called, "__func__", None)
        is_plain = isinstance(function, FunctionType) and not hasattr(function, "__wrapped__")
        if not (isinstance(called, MethodType) and is_plain):
            return signature(called)
        arguments, defaults = of_function(function)
        return arguments[1:], list(defaults)

    return remembered
