"""The key `ledger`: where budgets add up."""

from __future__ import annotations

from pipelines.ledger.url import LedgerUrl
from pipelines.sections.error import RuleBroken
from pipelines.sections.rules import text


def ledger_url(value: object) -> LedgerUrl:
    """The place of a ledger. The value is not shown: it may hold a password."""
    if not isinstance(value, str):
        raise RuleBroken("must be a text: sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    try:
        return LedgerUrl(text(value))
    except ValueError as error:
        raise RuleBroken(str(error)) from None
