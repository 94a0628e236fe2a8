"""An engine for tests: the job's own steps, one after the other, on lists.

Every hand-over between two steps has a name, and a fault can be planted at each; a release takes
milliseconds, where Beam's local runner takes a second to build and translate its graph.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.folder.existing_release import folder_nonce
from dptrees.transforms.folder.universe import share_universes
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps import count, counting, draw, record
from dptrees.transforms.steps import count as bound
from dptrees.transforms.steps import draw as rounds
from dptrees.transforms.steps import record as commit
from dptrees.transforms.steps.counting import SLOTS

MAIN = "main"
# What a fault makes of all elements of a hand-over.
Change = Callable[[str, list[Any]], list[Any]]

HAND_OVERS = (
    *("partial counts", "empty partial counts", "balance of rows", "exact counts", "digests"),
    *("balance of counts", "the recorded digest", "kept", "sent", "returned"),
    *("receipts of groups", "receipts of places", "the receipts of all"),
)


# Where a tree has branches.
BRANCH_HAND_OVERS = ("sent to branches", "kept by branches", "returned to branches")
# Where the unit is not the row.
UNIT_HAND_OVERS = (
    *("rows of units", "empty shards", "balance of units", "balance of empty shards"),
    *("counts of rows alone", "counts of shards"),
)
# The step in which groups query their places.
ROUND_HAND_OVERS = ("answers", "asked", "asked last", "counts after rounds")
# Where leaves are matched in parts.
SLOT_HAND_OVERS = ("counts of slots", "empty slots", "matched counts", "balance of slots")


def unchanged(name: str, elements: list[Any]) -> list[Any]:
    """No fault."""
    return elements


def outputs(given: Iterable[Any] | None) -> dict[str, list[Any]]:
    """What a step gives, by tag."""
    found: dict[str, list[Any]] = {}
    for each in given or ():
        name, element = each if isinstance(each, flow.Tagged) else (MAIN, each)
        found.setdefault(name, []).append(element)
    return found


def grouped(elements: Iterable[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
    """By key, as an engine groups."""
    found: dict[Any, list[Any]] = {}
    for key, value in elements:
        found.setdefault(key, []).append(value)
    return sorted(found.items())


def summed(balance: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The increments of a balance by name."""
    return {name: sum(increments) for name, increments in grouped(balance)}


def counted(
    plan: ReleasePlan,
    bundles: Iterable[Sequence[pa.RecordBatch]],
    key: KeyReference | None = None,
    nonce: bytes = b"",
) -> Iterator[Any]:
    """What the counting of bundles gives, windowed or not; without a key under a public one."""
    step: Any = count.CountBundle(plan, key or KeyReference(reference=""), nonce)
    if key is None:
        step._key = ReleaseKey(bytes(32))
    else:
        step.setup()
    yield from in_bundles(step, bundles)


def in_bundles(step: Any, bundles: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """What a step that is ready gives of bundles, windowed or not."""
    for bundle in bundles:
        step.start_bundle()
        for element in bundle:
            yield from step.process(element)
        yield from step.finish_bundle()


def release_table(
    plan: ReleasePlan, table: pa.Table, key: KeyReference, output: str, nonce: bytes
) -> None:
    """Releases a table, in several batches and three bundles, into a folder."""
    size = -(-len(table) // 9) or 1
    batches = table.combine_chunks().to_batches(max_chunksize=size)
    shared, own = share_universes(plan, output), folder_nonce(output, nonce, key.key_id)
    EagerRelease(shared, key, output, own).run([batches[:3], [], batches[3:]])


class EagerRelease:
    """A release by the job's steps.

    Args:
        plan: the questions.
        key: where the release key lies.
        output: the folder.
        nonce: of the folder.
        change: plants a fault.
        shards: in how many parts the rows of units are bounded.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        key: KeyReference,
        output: str,
        nonce: bytes,
        change: Change = unchanged,
        shards: int = 5,
    ) -> None:
        self._plan, self._key, self._output = plan, key, output
        self._nonce, self._change, self._shards = nonce, change, shards

    def run(self, bundles: Iterable[Sequence[pa.RecordBatch]]) -> list[str]:
        """The manifests that are committed: one.

        Raises:
            ConservationError: something was lost or came twice.
        """
        folder_nonce(self._output, self._nonce)
        counts, digests, balance = self._counts(bundles)
        recorded = self._recorded(digests, balance)
        if rounds.round_count(self._plan):
            counts = self._after_rounds(counts, recorded)
        receipts = self._drawn(counts, recorded)
        ends = self._ready(commit._Commit(*self._keyed, self._output, plan_manifest(self._plan)))
        return [
            path
            for each in self._over("the receipts of all", grouped((0, one) for one in receipts))
            for path in ends.process(each, recorded)
        ]

    @property
    def _keyed(self) -> tuple[ReleasePlan, KeyReference]:
        return self._plan, self._key

    def _over(self, name: str, elements: Iterable[Any]) -> list[Any]:
        known = HAND_OVERS + BRANCH_HAND_OVERS + UNIT_HAND_OVERS + SLOT_HAND_OVERS
        assert name in known + ROUND_HAND_OVERS
        return self._change(name, list(elements))

    def _ready(self, step: Any) -> Any:
        step.setup()
        return step

    def _each(self, step: Any, elements: Iterable[Any], *sides: Any) -> dict[str, list[Any]]:
        ready = self._ready(step)
        return outputs(one for each in elements for one in ready.process(each, *sides) or ())

    def _counts(self, bundles: Iterable[Sequence[pa.RecordBatch]]) -> tuple[Any, Any, Any]:
        partial = self._partial(bundles)
        matched = self._matched(partial.get(SLOTS, []))
        names = [question.name for question in self._plan.questions]
        empty = self._each(counting.EmptyPlaces(self._plan), names).get(MAIN, [])
        places = grouped(
            [
                *self._over("partial counts", partial.get(MAIN, [])),
                *self._over("empty partial counts", empty),
                *self._over("matched counts", matched.get(MAIN, [])),
            ]
        )
        merged = self._each(count._MergePlace(*self._keyed), places)
        balance = [
            *self._over("balance of rows", partial.get(BALANCE, [])),
            *self._over("balance of slots", matched.get(BALANCE, [])),
            *self._over("balance of counts", merged.get(BALANCE, [])),
        ]
        digests = self._over("digests", merged.get(count._DIGEST, []))
        return self._over("exact counts", merged.get(MAIN, [])), digests, balance

    def _matched(self, slots: list[Any]) -> dict[str, list[Any]]:
        names = [question.name for question in counting.matched_trees(self._plan)]
        empty = self._each(counting.EmptyPlaces(self._plan), names).get(MAIN, [])
        places = grouped([*self._over("counts of slots", slots), *self._over("empty slots", empty)])
        return self._each(counting._MatchPlace(*self._keyed), places)

    def _partial(self, bundles: Iterable[Sequence[pa.RecordBatch]]) -> dict[str, list[Any]]:
        if self._plan.unit.is_row:
            return outputs(counted(self._plan, bundles, self._key, self._nonce))
        send = self._ready(bound.SendRows(*self._keyed, self._shards, self._nonce))
        sent = outputs(in_bundles(send, bundles))
        trees = range(len(self._plan.questions))
        empty = self._each(bound.EmptyShards(self._plan, self._shards), trees)
        rows = self._over("rows of units", sent.get(MAIN, []))
        shards = grouped([*rows, *self._over("empty shards", empty.get(MAIN, []))])
        count_shards = self._ready(bound.CountBounded(*self._keyed, self._nonce))
        bounded = outputs(in_bundles(count_shards, [shards[:7], [], shards[7:]]))
        counts = self._over("counts of rows alone", sent.get(bound._COUNTS, []))
        balance = self._over("balance of units", sent.get(BALANCE, []))
        balance += self._over("balance of empty shards", empty.get(BALANCE, []))
        return {
            MAIN: counts + self._over("counts of shards", bounded.get(MAIN, [])),
            BALANCE: balance + bounded.get(BALANCE, []),
        }

    def _recorded(self, digests: list[bytes], balance: list[tuple[str, int]]) -> list[bytes]:
        total = [reduce(record.add_digests, digests)] if digests else []
        given = summed(balance)
        rows = given.pop("rows", 0)  # the reader's, which is not here
        assert rows <= 0
        step = record._Record(*self._keyed, self._output, self._nonce)
        found = self._each(step, total, given)
        return self._over("the recorded digest", found.get(MAIN, []))

    def _after_rounds(self, counts: list[Any], recorded: list[bytes]) -> list[Any]:
        requests: dict[Any, bytes] = {}
        last: list[Any] = []
        for number in range(rounds.round_count(self._plan)):
            sides = recorded, requests, number
            found = self._each(rounds._Answer(*self._keyed), counts, *sides)
            groups = grouped(self._over("answers", found.get(MAIN, [])))
            requested = self._each(rounds._Ask(*self._keyed), groups, *sides)
            requests = dict(self._over("asked", requested.get(MAIN, [])))
            last += requested.get(rounds._LAST, [])
        final = dict(self._over("asked last", last))
        found = self._each(rounds._Asked(self._plan), counts, final)
        return self._over("counts after rounds", found.get(MAIN, []))

    def _drawn(self, counts: list[Any], recorded: list[bytes]) -> list[bytes]:
        drawn = self._each(draw._Draw(*self._keyed), counts, recorded)
        below = grouped(self._over("sent to branches", drawn.get(draw.TO_BRANCH, [])))
        branches = self._each(draw._DrawBranch(*self._keyed), below, recorded)
        to_groups = [*drawn.get(draw.SENT, []), *branches.get(draw.SENT, [])]
        sent = grouped(self._over("sent", to_groups))
        gathered = self._each(draw._Gather(*self._keyed, self._output), sent, recorded)
        through = grouped(
            [
                *self._over("kept by branches", branches.get(MAIN, [])),
                *self._over("returned to branches", gathered.get(draw.TO_BRANCH, [])),
            ]
        )
        spread = self._each(draw._FinishBranch(self._plan, self._output), through)
        both = grouped(
            [
                *self._over("kept", drawn.get(MAIN, [])),
                *self._over("returned", [*gathered.get(MAIN, []), *spread.get(MAIN, [])]),
            ]
        )
        finished = self._each(draw._Finish(self._plan, self._output), both)
        return [
            *self._over(
                "receipts of groups",
                [*gathered.get(draw.RECEIPTS, []), *spread.get(draw.RECEIPTS, [])],
            ),
            *self._over("receipts of places", finished.get(MAIN, [])),
        ]
