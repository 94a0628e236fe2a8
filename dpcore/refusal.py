"""A refusal that names what it refuses: a program can put it at the key that a person wrote."""

from __future__ import annotations


class Refusal(ValueError):
    """A value breaks a rule. The message is one sentence, ``field: rule`` unless another is given.

    Args:
        field: the name of what is refused.
        rule: what is wrong with it, without a full stop.
        sentence: the whole message.

    >>> refused = Refusal("delta", "needs one beside epsilon")
    >>> refused.field, str(refused)
    ('delta', 'delta: needs one beside epsilon')
    """

    def __init__(self, field: str, rule: str, sentence: str = "") -> None:
        super().__init__(field, rule, sentence)
        self.field, self.rule = field, rule
        self._sentence = sentence or f"{field}: {rule}"

    def __str__(self) -> str:
        return self._sentence

    @classmethod
    def from_value(cls, field: str, said: str, *, column: str | None = None) -> Refusal:
        """A refusal whose rule goes on after the field, mostly with the value.

        Args:
            field: the name of what is refused.
            said: the rest of the sentence.
            column: the column of the rows that the field belongs to.

        >>> refused = Refusal.from_value("cells", "0 must be positive.", column="age")
        >>> refused.rule, str(refused)
        ('0 must be positive', "column 'age': cells 0 must be positive.")
        """
        where = "" if column is None else f"column {column!r}: "
        return cls(field, said.removesuffix("."), f"{where}{field} {said}")


ANOTHER_MATRIX = (
    "strategy: this machine makes another matrix of the weights than the plan has: use one with "
    "the NumPy and the linear algebra of the machine that made the plan"
)


class MatrixError(ValueError):
    """This machine makes another matrix than the plan has."""
