"""A check of a release: its name, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

# What a release that somebody edited makes of a computation; deep JSON is a RuntimeError.
UNREADABLE = (
    *(LookupError, TypeError, ValueError, AssertionError, AttributeError, ArithmeticError),
    *(RuntimeError, OSError, pa.ArrowException),
)


class CheckFailed(Exception):
    """A check does not hold; the message says why."""


class NotChecked(Exception):
    """A check says nothing about what lies there; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of a check.

    Args:
        check: its name.
        ok: whether it holds; None where it was not made, since one before it failed.
        told: what was compared, or why it fails.
        decided: it was made, and says something; else `ok` is None.
    """

    check: str
    ok: bool | None
    told: str
    decided: bool = True

    @property
    def line(self) -> str:
        """For a person.

        >>> Finding(check="files", ok=True, told="16 of 16").line
        'ok       files: 16 of 16'
        """
        state = {True: "ok", False: "FAILED", None: "not made"}[self.ok]
        state = state if self.decided else "not checked"
        return f"{state:8} {self.check}: {self.told}"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check that can be made.

    Args:
        name: for the reader.
        made: makes it; returns what was compared, or raises `CheckFailed`.
        after: the checks that must hold before.
        edited: what it reads may have been edited, so that a computation may fail anywhere.
    """

    name: str
    made: Callable[[], str]
    after: tuple[str, ...] = ()
    edited: bool = True

    def finding(self) -> Finding:
        """What comes of it."""
        try:
            return Finding(check=self.name, ok=True, told=self.made())
        except CheckFailed as failed:
            return Finding(check=self.name, ok=False, told=str(failed))
        except NotChecked as said:
            return Finding(check=self.name, ok=None, told=str(said), decided=False)
        except UNREADABLE as error:
            if not self.edited:
                raise
            text = f"cannot be computed of what is there: {type(error).__name__} {error}"
            return Finding(check=self.name, ok=False, told=text)


def run_checks(checks: list[Check]) -> list[Finding]:
    """Makes checks one after the other.

    >>> def failing() -> str:
    ...     raise CheckFailed("no")
    >>> [each.ok for each in run_checks([
    ...     Check(name="a", made=failing), Check(name="b", made=str, after=("a",))])]
    [False, None]
    """
    actual: dict[str, Finding] = {}
    for check in checks:
        missing = [name for name in check.after if not actual[name].ok]
        if missing:
            finding = Finding(check=check.name, ok=None, told=f"needs {missing[0]}")
        else:
            finding = check.finding()
        actual[check.name] = finding
    return list(actual.values())
