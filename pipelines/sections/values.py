"""Values of a configuration that are checked without pydantic: sizes of numbers, URLs of ledgers.

A number's digits, all written out, must fit into a line or so. A URL never holds a password:
libpq finds one in PGPASSWORD or in a password file, so that none passes through a configuration,
a message or an engine's job.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from decimal import Decimal
from urllib.parse import parse_qsl, quote, urlsplit

_LARGEST_EXPONENT = 400
UNUSUAL_SIZE = f"must be 0 or from 1e-{_LARGEST_EXPONENT} to 1e{_LARGEST_EXPONENT}"


def has_usual_size(number: int | Decimal) -> bool:
    """Whether a number, written with all its digits, fits into a line or so; infinities do.

    >>> has_usual_size(Decimal("1e999999999")), has_usual_size(-5), has_usual_size(Decimal("inf"))
    (False, True, True)
    """
    if isinstance(number, int):
        return bool(abs(number) < 10**_LARGEST_EXPONENT)
    if not number.is_finite() or not number:
        return True
    return abs(number.adjusted()) <= _LARGEST_EXPONENT


_SQLITE = "sqlite:///"
_FORM = "must be sqlite:///FILE or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class LedgerUrl:
    """The place of a ledger.

    Args:
        text: ``sqlite:///FILE`` (``sqlite:////FILE`` from the root) or
            ``postgresql://USER@HOST/DATABASE``.

    Raises:
        ValueError: it is neither, or holds a password; the message does not show it.

    >>> LedgerUrl("sqlite:///budget.db").file, LedgerUrl("postgresql://me@db/budgets").file
    ('budget.db', None)
    """

    text: str

    def __post_init__(self) -> None:
        if self.file is None:
            _check_server(self.text)
        elif not self.file or self.file.startswith(":") or "?" in self.file:
            raise ValueError(_FORM)

    def __str__(self) -> str:
        return self.text

    @property
    def file(self) -> str | None:
        """The path of the file; None of a server."""
        return self.text.removeprefix(_SQLITE) if self.text.startswith(_SQLITE) else None

    def absolute(self) -> LedgerUrl:
        """The same place for a worker, which may run in another folder than the launcher."""
        if self.file is None:
            return self
        return replace(self, text=_SQLITE + os.path.abspath(self.file))

    def file_uri(self, *, create: bool) -> str:
        """SQLite's name of the file; without `create` one that is missing stays missing."""
        assert self.file is not None
        return f"file:{quote(os.path.abspath(self.file))}?mode={'rwc' if create else 'rw'}"


def _check_server(text: str) -> None:
    """Sees that a URL names a database of PostgreSQL and holds no password."""
    try:
        parts = urlsplit(text)
        secret, _ = parts.password, parts.port
    except ValueError:
        raise ValueError(_FORM) from None
    names = [name for name, _ in parse_qsl(parts.query)]
    if secret is not None or any("password" in name.lower() for name in names):
        raise ValueError(
            "must not hold a password: put it into PGPASSWORD, or into a password file (~/.pgpass)"
        )
    if parts.scheme != "postgresql" or not parts.path.strip("/") or parts.fragment:
        raise ValueError(_FORM)
