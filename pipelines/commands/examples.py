"""Examples of every command, for its help. A test runs them, in this order."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "keygen": ("dptrees keygen release.key",),
    "init": ("dptrees init new.yaml --input data/ages.parquet", "dptrees init empty.yaml"),
    "plan": (
        "dptrees plan ages.yaml",
        "dptrees plan ages.yaml --target-error age=25",
        "dptrees plan ages.yaml --json",
    ),
    "ledger": (
        "dptrees ledger init sqlite:///budget.db --dataset people --epsilon 4",
        "dptrees ledger show sqlite:///budget.db",
        "dptrees ledger history sqlite:///budget.db",
    ),
    "check": (
        "dptrees check ages.yaml",
        "dptrees check ages.yaml --rows 1000 --json",
        "dptrees check ages.yaml --no-rows",
    ),
    "release": (
        "dptrees release ages.yaml --json > release.json",
        "dptrees release ages.yaml --repair",
    ),
    "query": (
        "dptrees query out/ages cdf --tree age 18 65",
        "dptrees query out/ages quantile --tree age 0.25 0.5 0.75",
        "dptrees query out/ages range --tree age 18 65 --json",
        "dptrees query out/ages top --tree work -n 3",
        "dptrees query out/ages sum --tree work --paths office home",
        "dptrees query out/ages node --tree work --value office",
        "dptrees query out/ages node --tree months --path 2024-Q3 --children",
        'dptrees query out/ages box --tree both --side age 18 65 --side hours 40 ""',
    ),
    "sample": ("dptrees sample out/ages --tree both -n 1000 --output rows.parquet",),
    "report": ("dptrees report out/ages",),
    "verify": (
        "dptrees verify out/ages",
        "dptrees verify out/ages --key release.key --data ages.yaml",
    ),
    "series": ("dptrees series compact out/daily",),
    "schema": ("dptrees schema > configuration.schema.json",),
}


def examples_text(name: str) -> str | None:
    """What the help of a command ends with; None where there are no examples of it.

    >>> print(examples_text("report"))
    examples:
      dptrees report out/ages
    """
    lines = EXAMPLES.get(name)
    return None if lines is None else "\n  ".join(("examples:", *lines))
