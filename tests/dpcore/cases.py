"""Cases that cost little: one test runs them all and names those that fail."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(
    names: str | tuple[str, ...], values: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each value, as ``pytest.mark.parametrize`` does, but in one loop.

    All values run, whatever fails. The error lists the values that failed, and its cause is the
    first failure. Use it where cases are quick and share no fixture that a case changes.
    """
    arguments = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    cases = [tuple(value) if len(arguments) > 1 else (value,) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            for case in cases:
                given = dict(zip(arguments, case, strict=True))
                try:
                    test(*instance, **fixtures, **given)
                except Exception as error:
                    name = ", ".join(f"{key}={value!r:.200}" for key, value in given.items())
                    failed.append((f"{name}: {type(error).__name__}: {error}", error))
            if failed:
                lines = [text for text, _ in failed]
                raise AssertionError(
                    "\n".join([f"{len(failed)} of {len(cases)} fail", *lines])
                ) from (failed[0][1])

        shown = inspect.signature(test)
        rest = [each for name, each in shown.parameters.items() if name not in arguments]
        if missing := set(arguments) - set(shown.parameters):
            raise TypeError(f"{test.__name__} has no parameter {sorted(missing)}")
        run.__signature__ = shown.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
