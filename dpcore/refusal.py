"""A refusal that names what it refuses: a program can put it at the key that a person wrote."""

from __future__ import annotations


class Refusal(ValueError):
    """A choice breaks a rule; the message is one sentence, ``field: rule``.

    Args:
        field: the name of what is refused.
        rule: what is wrong with it.

    >>> refused = Refusal("delta", "needs one beside epsilon")
    >>> refused.field, str(refused)
    ('delta', 'delta: needs one beside epsilon')
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field, self.rule = field, rule
