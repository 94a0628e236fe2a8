"""A tree on the terminal: what ``dptrees plan`` shows of it, and the summary of a release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import Answer, Released
from dptrees.pipelines.answers.figures import with_margin
from dptrees.pipelines.plain.counted import counted_note, counted_noun
from dptrees.pipelines.terminal_text import escaped

KEYS_SHOWN = 5
NODES_SHOWN = 5


def key_number(question: Question) -> int | None:
    """How many trees there are; None where keys are yet to be selected."""
    return question.key_count if question.keys is None or question.keys.is_listed else None


def times_keys(question: Question) -> str:
    """Say how often a tree exists, where it has keys."""
    if question.keys is None:
        return ""
    if not question.keys.is_listed:
        return f", once for each key of {', '.join(question.keys.columns)} that is selected"
    return f", once for each of {question.key_count} keys"


def summary_lines(tree: Released) -> Iterator[str]:
    """The counts of the roots, and the largest nodes below."""
    yield from heading(tree.question, tree.question.columns)
    below = min(1, tree.height)
    yield from totals(
        tree,
        counted_noun(tree.question),
        lambda label, _: (largest(each) for each in tree.top(NODES_SHOWN, below, label)),
    )


def heading(question: Question, columns: Iterable[str]) -> Iterator[str]:
    """What a tree is, before what was released of it."""
    yield ""
    note = counted_note(question)
    yield (
        f"{question.name} ({', '.join(columns)}; ± is half of a "
        f"{100 * question.confidence:g} % confidence interval{'' if note is None else f'; {note}'})"
    )


def totals(
    tree: Released, counted: str, below: Callable[[str | None, str], Iterable[str]]
) -> Iterator[str]:
    """The count of the root under the first keys, and what is said below each.

    Args:
        tree: that was released.
        counted: what it counts.
        below: the lines of a key, from its name and the blanks that represent it.
    """
    shown = min(KEYS_SHOWN, tree.question.key_count)
    for label in tree.question.labels_between(0, shown):
        name = "" if label is None else f"{escaped(label):<8}"
        (total,) = tree.top(1, 0, label)
        yield f"  {name}{counted} {_margin(total)}"
        yield from below(label, " " * len(name))
    if tree.question.key_count > shown:
        yield f"  ... and {tree.question.key_count - shown} more keys"


def largest(node: Answer) -> str:
    """The line of one of the largest nodes."""
    return f"    {escaped(node.shown):<20} {_margin(node):>20}"


def _margin(answer: Answer) -> str:
    shown = answer.count if answer.estimate is None else answer.estimate
    return with_margin(shown, answer.ci_low, answer.ci_high, answer.std_error)
