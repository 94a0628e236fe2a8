"""The balance of a job, which shows whether an engine lost or repeated data, and its counters.

Engines do lose data, so steps emit increments to integers that must sum to zero: files and
splits handed on, rows read and counted, partial counts sent and received. A mismatch stops the
job before any noise is drawn. The sums stay inside the job, and how many increments there are
follows from the plan alone. No public counter depends on the rows: an exact count shown on an
engine's page would be a release without noise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from dptrees.dpcore.bounding.unit_ids import mixed_families
from dptrees.dpcore.questions.messages import UNIT_SHARDS, Place
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import ConservationError, InputError

# A prime, so small that 2^32 increments add up within 64 bits.
_MODULUS = 2**31 - 1
_UNIT_TYPE = "type of the privacy unit in "


def residue(increment: int) -> int:
    """An increment of any size as a small one, equal to it modulo 2^31 - 1.

    Sums of values may be beyond 64 bits, and what does not balance must not depend on that: a sum
    and its residues balance alike. Small increments are their own residues.

    >>> residue(-5), residue(2**71), residue(2**71) + residue(-(2**71))
    (-5, 512, 0)
    """
    half = _MODULUS // 2
    return (increment + half) % _MODULUS - half


def taken_off(balance: dict[str, int], name: str, received: Iterable[bytes]) -> Iterator[bytes]:
    """Elements one by one, each taken off a balance: an engine may hand on more than memory has."""
    for each in received:
        balance[name] -= 1
        yield each


def tree_rows(tree: str) -> str:
    """The name of the balance between rows kept for a tree and the total of its counts."""
    return f"rows of tree {tree}"


def tree_partials(tree: str) -> str:
    """The name of the balance between the partial counts of a tree's chunks, sent and received."""
    return f"partial counts of tree {tree}"


def unit_rows(tree: str) -> str:
    """The name of the balance between the rows of units sent to shards and received there, where
    each message counts as one more."""
    return f"rows of units of tree {tree}"


def unit_shards(tree: str) -> str:
    """The name of the balance between the shards of units planned and bounded."""
    return f"shards of units of tree {tree}"


def balance_name(question: Question, place: Place) -> str:
    """The name of the balance that the counts of a place take part in: between the rows kept and
    the total of the counts, or between partial counts and their sums."""
    number = question.place_balance(place)
    return f"rows of level {number} of tree {question.name}" if number else tree_rows(question.name)


def tree_slots(tree: str) -> str:
    """The name of the balance between rows kept for a tree and the total of what was matched with
    its leaves."""
    return f"rows of tree {tree} before they were matched"


def slot_partials(tree: str) -> str:
    """The name of the balance between the partial counts of a tree sent to be matched and
    received."""
    return f"partial counts of tree {tree} before they were matched"


def tree_matched(tree: str) -> str:
    """The name of the count of chunks of a tree whose counts were matched with its leaves."""
    return f"matched chunks of tree {tree}"


def tree_chunks(tree: str) -> str:
    """The name of the count of chunks of a tree."""
    return f"chunks of tree {tree}"


def tree_carried(tree: str) -> str:
    """The name of the count of places of a tree whose carried counts were opened."""
    return f"carried counts of tree {tree}"


def tree_units(tree: str) -> str:
    """The name of the count of shards of a tree whose units, as runs before counted them, were
    opened."""
    return f"remembered units of tree {tree}"


def unit_types(families: Mapping[str, str]) -> set[str]:
    """The names of the counts of bundles whose units have types of these families, by column."""
    return {f"{_UNIT_TYPE}{column}: {family}" for column, family in families.items()}


def _check_unit_types(balance: Mapping[str, int]) -> None:
    """Stop a job whose batches have units of two families of types.

    Raises:
        InputError: naming the column and the families.
    """
    seen: dict[str, str] = {}
    for name in sorted(each for each in balance if each.startswith(_UNIT_TYPE)):
        column, _, family = name.removeprefix(_UNIT_TYPE).rpartition(": ")
        if seen.setdefault(column, family) != family:
            raise InputError(f"rows: {mixed_families(column, family, seen[column])}")


def expected_balance(plan: ReleasePlan) -> dict[str, int]:
    """The sums of a balanced job that are not zero: every chunk of the plan was summed once, and
    matched once if its tree needs that; and everything that was carried on was opened once."""
    expected = {}
    for question in plan.questions:
        expected[tree_chunks(question.name)] = len(question.places)
        if question.is_matched:
            expected[tree_matched(question.name)] = len(question.places)
        if question.carried_places:
            expected[tree_carried(question.name)] = len(question.carried_places)
    for question in plan.remembering if plan.is_later_run else ():
        expected[tree_units(question.name)] = UNIT_SHARDS
    return expected


def check_balance(plan: ReleasePlan, balance: Mapping[str, int]) -> None:
    """Stops a job that lost or repeated something.

    Args:
        plan: says how many chunks there are.
        balance: the summed increments by name, or their residues.

    Raises:
        ConservationError: naming what does not balance, without a number of rows.
        InputError: the rows have units of two families of types.
    """
    _check_unit_types(balance)
    expected = expected_balance(plan)
    for name in sorted(expected.keys() | balance.keys()):
        if name.startswith(_UNIT_TYPE):
            continue
        if residue(balance.get(name, 0) - expected.get(name, 0)) != 0:
            raise ConservationError(
                f"the engine lost or repeated data: {name} do not balance, so nothing was released"
            )


def check_digests(plan: ReleasePlan, chunks: int) -> None:
    """Stops a job whose global digest is not over every chunk of the plan.

    Raises:
        ConservationError: a chunk's digest was lost or repeated.
    """
    shards = UNIT_SHARDS * len(plan.remembering)
    if chunks != shards + sum(len(question.places) for question in plan.questions):
        raise ConservationError(
            "the engine lost or repeated data: digests of chunks do not balance, so nothing was "
            "released"
        )


def check_once(name: str, given: Iterable[object], planned: Iterable[object]) -> None:
    """Stops a job in which a message did not arrive exactly once.

    Raises:
        ConservationError: naming the message.
    """
    if sorted(given, key=repr) != sorted(planned, key=repr):
        raise ConservationError(
            f"the engine lost or repeated data: {name} did not arrive exactly once"
        )


NAMESPACE = "dptrees"

Listener = Callable[[str, int], None]

_listeners: list[Listener] = []
_counters: list[Listener] = []

# Public counters; the plan, the layout of the files, or the noisy release alone decides them:
# splits of input files read to their end,
SPLITS_READ = "splits_read"
# chunks of trees, and shards of sparse ones, whose noise was drawn,
CHUNKS_MEASURED = "chunks_measured"
# parts of the release written,
PARTS_WRITTEN = "parts_written"
# and the bytes of those parts.
BYTES_WRITTEN = "bytes_written"


def count_by(counter: Listener) -> None:
    """Call ``counter(name, amount)`` whenever a public counter of this process increases."""
    _counters.append(counter)


def increase(name: str, amount: int = 1) -> None:
    """Increase a public counter."""
    for counter in _counters:
        counter(name, amount)


def listen(listener: Listener) -> Callable[[], None]:
    """Calls ``listener(stage, amount)`` as work is done; returns what ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def advance(stage: str, amount: int) -> None:
    """Report that an amount of a stage's work is done.

    >>> seen = []
    >>> stop = listen(lambda stage, amount: seen.append((stage, amount)))
    >>> advance("read", 10); stop(); advance("read", 10); seen
    [('read', 10)]
    """
    for listener in _listeners:
        listener(stage, amount)
