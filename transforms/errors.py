"""What a job says when it must stop: one sentence that holds no data.

An engine carries an exception's text through its own wrapping, so the sentence stands between
marks by which the launcher finds it again.
"""

import re

_MARKED = re.compile(r"<dptrees: (.*?) :dptrees>", re.DOTALL)


class ReleaseError(Exception):
    """The release cannot be made; the message is for the person who started the job."""

    def __init__(self, sentence: str) -> None:
        # Beam makes an error again from its own text, with the name of the step behind it.
        self.sentence = sentence_in(sentence) or sentence
        super().__init__(f"<dptrees: {self.sentence} :dptrees>")

    # Engines pickle exceptions; the default would mark the sentence twice.
    def __reduce__(self) -> tuple[type["ReleaseError"], tuple[str]]:
        return type(self), (self.sentence,)


class InputError(ReleaseError):
    """The data cannot be read as configured: the user's to mend."""


class ConservationError(ReleaseError):
    """The engine lost or repeated data on the way: the job must not publish."""


def sentence_in(text: str) -> str | None:
    """The sentence of a `ReleaseError` somewhere in an engine's message, None without one.

    >>> sentence_in(f"RuntimeError: {InputError('no such column')} [while running 'Read']")
    'no such column'
    """
    found = _MARKED.search(text)
    return found.group(1) if found else None
