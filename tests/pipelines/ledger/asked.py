"""What tests ask of a ledger: small plans, and requests for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dptrees.dpcore.privacy.unit import Measure, Neighbors
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.ledger.accounts import Account, Loss
from dptrees.pipelines.ledger.ledger import BudgetRequest, Ledger, open_account
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.configuration_text import text_with

KEY = 64 * "a"
TREE = "{name: all, domain: {column: x, lower: 0, upper: 100, cells: 16}}"


@lru_cache
def plan_of(
    privacy: str = "epsilon: 1",
    name: str = "small",
    neighbors: str = "add_remove",
    tree: str = TREE,
    series: str | None = None,
) -> ReleasePlan:
    """The plan of a small release."""
    privacy = f"{{{privacy}, neighbors: {neighbors}}}"
    text = text_with(release=name, privacy=privacy, trees=f"[{tree}]", series=series)
    return parse_configuration(text).plan()


def asked(privacy: str = "epsilon: 1", name: str = "small", **other: Any) -> BudgetRequest:
    """What a small release asks for."""
    request = {"dataset": "flights", "folder": f"/out/{name}", "key": KEY} | other
    # A name changes nothing that takes long to plan.
    plan = request.pop("plan", None) or replace(plan_of(privacy), name=name)
    return BudgetRequest(plan=plan, **request)


def account_of(
    epsilon: str | None = "3", delta: str = "0", rho: str = "0", **other: Any
) -> Account:
    """The account of a data set."""
    total = Loss(epsilon=Fraction(epsilon or 0), delta=Fraction(delta), rho=Fraction(rho))
    measure = Measure.RHO if epsilon is None else Measure.EPSILON
    settings = {"dataset": "flights", "unit": (), "neighbors": Neighbors.ADD_REMOVE} | other
    return Account(measure=measure, total=total, **settings)


def opened(url: str, account: Account | None = None) -> Ledger:
    """A ledger with a data set."""
    open_account(LedgerUrl(url), account or account_of())
    return Ledger(LedgerUrl(url))
