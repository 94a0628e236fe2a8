"""Sessions add up what their releases spend, and a process says what rows have cost so far."""

from __future__ import annotations

import gc
import os
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.python import making as sessions
from dptrees.pipelines.python import rows as spent
from tests.pipelines.python.test_making import MINUTES
from tests.pipelines.refusals import not_refused

ROWS = {"minutes": np.arange(300), "who": np.arange(300) // 3}
TREES = [{"name": "minutes", "domain": MINUTES}]


def config(**privacy: Any) -> dict[str, Any]:
    return {"privacy": {"neighbors": "add_remove", **privacy}, "trees": TREES}


def test_the_release_that_passes_the_total_is_refused_before_anything_is_drawn() -> None:
    session = dptrees.Session(epsilon=0.3, dataset="survey")
    for _ in range(3):  # a tenth is exactly a tenth
        session.release(ROWS, config(epsilon=0.1))
    assert session.spent == 0.3 and session.left == 0
    with pytest.raises(dptrees.Error, match=r"0.001 is more than .* session of survey, 0 of 0.3$"):
        session.release(ROWS, config(epsilon=0.001))
    assert repr(session) == ("<Session of survey: epsilon = 0.3; 3 releases spent 0.3, 0 is left>")


def test_a_total_that_is_counted_twice_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the releases before are forgotten."""
    session = dptrees.Session(epsilon=1)
    monkeypatch.setattr(
        sessions.Session, "_sum", sessions.Spent(amount=Fraction(0), delta=Fraction(0))
    )
    for _ in range(2):
        session.release(ROWS, config(epsilon=1))  # the second should have been refused


def test_deltas_add_up_too() -> None:
    session = dptrees.Session(epsilon=10, delta=1e-6)
    session.release(ROWS, config(epsilon=1, delta=1e-6))
    with pytest.raises(dptrees.Error, match=r"privacy.delta: 1e-06 is more than .* 0 of 1e-06"):
        session.release(ROWS, config(epsilon=1, delta=1e-6))
    session.release(ROWS, config(epsilon=1))
    assert "2 releases spent 2 and delta 1e-06, 8 is left" in repr(session)
    with pytest.raises(dptrees.Error, match=r"privacy.delta: 1e-06 is more than .* 0 of 0$"):
        dptrees.Session(epsilon=1).check_room(config(epsilon=1, delta=1e-6))


def test_what_does_not_add_up_is_refused() -> None:
    session = dptrees.Session(epsilon=9)
    session.release(ROWS, config(epsilon=1))
    others: list[tuple[dict[str, Any], str]] = [
        ({"rho": 0.1}, "counts epsilon, and this release spends rho"),
        ({"epsilon": 1, "unit": "who", "max_rows": 3}, "each row ...each who ...do not add up"),
        ({"epsilon": 1, "neighbors": "substitute"}, "under add_remove, ... under substitute"),
    ]

    def attempt(other: dict[str, Any]) -> None:
        session.release(ROWS, config(**other))

    assert not not_refused(attempt, others, dptrees.Error)
    assert session.spent == 1


def test_bounds_of_a_unit_may_differ() -> None:
    session = dptrees.Session(epsilon=2)
    for rows in (1, 3):
        session.release(ROWS, config(epsilon=1, unit="who", max_rows=rows))
    assert session.left == 0


def test_a_refused_configuration_spends_nothing_and_a_failed_release_stays_spent() -> None:
    session = dptrees.Session(epsilon=1)
    with pytest.raises(dptrees.Error, match=r"privacy\.epsilom"):
        session.release(ROWS, {"privacy": {"epsilom": 1}, "trees": TREES})
    assert session.spent == 0
    with pytest.raises(dptrees.Error, match="minutes"):
        session.release({"hours": [1]}, config(epsilon=0.25))
    assert session.spent == 0.25


def test_totals_that_are_none() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({}, "give one of epsilon and rho"),
        ({"epsilon": 1, "rho": 1}, "give one of epsilon and rho"),
        ({"rho": 1, "delta": 1e-6}, "delta: goes with epsilon"),
        ({"epsilon": 0}, "epsilon: 0 must be a number above 0"),
        ({"epsilon": "much"}, "epsilon: 'much' must be a number above 0"),
        ({"epsilon": 1, "delta": 1}, "delta: 1 must be below 1"),
    ]
    assert not not_refused(lambda totals: dptrees.Session(**totals), rows, dptrees.Error)


def test_releases_of_the_same_rows_say_what_they_spend_together() -> None:
    rows = pa.table({"minutes": np.arange(20_000) % 300})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        first = dptrees.release(rows, config(epsilon=1))
    assert "together" not in repr(first)
    with pytest.warns(UserWarning, match=r"^2 releases of these rows .* epsilon = 1.5 together;"):
        second = dptrees.release(rows, config(epsilon=0.5))
    assert "2 releases of these rows in this process spend epsilon = 1.5 together" in repr(second)
    with pytest.warns(UserWarning, match=r"epsilon = 1.5 and rho = 0.125 together"):
        dptrees.release(rows, config(rho=0.125))


def test_rows_are_forgotten_with_their_object() -> None:
    rows = pa.table({"minutes": [1, 2]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dptrees.release(rows, config(epsilon=1))
    key = id(rows)
    assert key in spent._budgets
    del rows
    gc.collect()
    assert key not in spent._budgets


def test_a_copy_in_a_forked_process_spends_nothing() -> None:
    """Three workers would spend three times the total."""
    session = dptrees.Session(epsilon=1)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        told = []
        for use in (
            lambda: session.release(ROWS, config(epsilon=0.9)),
            lambda: session.check_room(config(epsilon=0.9)),
            lambda: dptrees.of(ROWS, epsilon=0.9).mean("minutes", (0, 9)).release(session=session),
        ):
            try:
                use()
            except BaseException as error:
                told.append(f"{type(error).__name__}: {error}")
        os.write(write, "\n".join(told).encode())
        os._exit(0)
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    with os.fdopen(read) as pipe:
        told = pipe.read().splitlines()
    assert len(told) == 3
    assert all(each.startswith("Error: Session: another process made it") for each in told)
    assert session.left == 1


def test_amounts_that_differ_look_different() -> None:
    """In the sentence of a refusal, whatever the size of the difference."""
    for total in ("0.3", "1e-7", "123456789", "2.5"):
        above = np.nextafter(float(total), np.inf)
        session = dptrees.Session(epsilon=total)
        with pytest.raises(dptrees.Error) as refused:
            session.check_room(config(epsilon=float(above)))
        wanted, left = str(refused.value).split(": ")[1].split(" is more than what is left")
        assert Fraction(wanted) > Fraction(left.split(", ")[1].split(" of ")[0]) == Fraction(total)


def test_a_narrow_float_is_the_decimal_that_it_shows() -> None:
    for number in (np.float16, np.float32, np.float64, float):
        session = dptrees.Session(epsilon=number(0.1))
        session.check_room(config(epsilon=0.1))
        plan = dptrees.plan(config(epsilon=number(0.1)))
        assert plan._configuration.guarantee.budget.amount == Fraction(1, 10)
        quantiles = np.array([0.1, 0.9], number)
        tree = {"name": "t", "domain": MINUTES, "objective": "quantiles", "quantiles": quantiles}
        plan = dptrees.plan(config(epsilon=1) | {"trees": [tree]})
        assert list(plan._plan.questions[0].quantiles) == [0.1, 0.9]  # type: ignore[attr-defined]
