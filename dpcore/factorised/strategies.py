"""The strategies that there are, by the name in their specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpcore.factorised.dense import DenseStrategy
from dpcore.factorised.strategy import Strategy
from dpcore.factorised.toeplitz import ToeplitzStrategy

STRATEGIES: Mapping[str, Callable[[Mapping[str, Any]], Strategy]] = {
    "optimum": DenseStrategy.from_spec,
    "toeplitz": ToeplitzStrategy.from_spec,
}


def strategy_from_spec(spec: Mapping[str, Any]) -> Strategy:
    """The strategy of a specification, as `Strategy.spec` writes it.

    >>> strategy_from_spec(ToeplitzStrategy.of(9).spec()) == ToeplitzStrategy.of(9)
    True
    """
    return STRATEGIES[str(spec["kind"])](spec)
