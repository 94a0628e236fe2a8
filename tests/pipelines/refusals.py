"""Tables of refusals: a row for each, whose last text is what the sentence has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def not_refused(
    attempt: Callable[..., object],
    rows: Iterable[tuple[Any, ...]],
    error: type[Exception] = ValueError,
) -> list[str]:
    """Return a line for each row whose attempt is not refused in one line with its words.

    The words are a part of the sentence, or two with "..." between them.
    """
    faults = []
    for *arguments, words in rows:
        try:
            attempt(*arguments)
        except error as refused:
            sentence = f"{getattr(refused, 'at', '')}: {refused}"
            if any(part not in sentence for part in words.split("...")) or "\n" in sentence:
                faults.append(f"{arguments}: {words!r} is not in {sentence!r}")
        else:
            faults.append(f"{arguments}: not refused, though {words!r}")
    return faults
