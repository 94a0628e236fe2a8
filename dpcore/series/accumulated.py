"""A tree that is released of all periods so far, though its shape follows from noisy counts: a
partition that grows.

    rows of period t -> exact counts of the period
    + exact counts of closed temporal nodes, and where the noise of each comes from
    -> of nodes that close: noise, a partition, tables
    -> of all periods to date: noisy counts of the largest closed nodes, added node by node; the
       partition that grows from them

Each temporal node has noise of its own for every node of the partition, drawn in the run in which
it closes: a fixed number, which later runs compute again from the exact counts that they carry on
and from what seeded it. So what all runs look at is a part of one noisy tree for each temporal
node, and is as private as these trees are, however often and whenever they are looked at. A row is
in one temporal node of each level, and what the levels spend adds up.

The state is the exact counts of the closed nodes that totals to date are put together from: at most
one less than the fan-out for each temporal level.

Source: Holland, Camtepe, Thapa, Xue, Appendix A (continual counters and continual sketches); of the
latter: Epasto, Mao, Munoz Medina, Mirrokni, Vassilvitskii, Zhong, "Differentially private continual
releases of streaming frequency moment estimations", arXiv 2301.05605.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.questions.accumulated import AccumulatedTree, Measured
from dptrees.dpcore.questions.place import Counts, Drawn, Gathered, Part, Place, ReleasedPart
from dptrees.dpcore.rows.packing import pack_many, unpack_many
from dptrees.dpcore.series.carried_counts import set_aside
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.temporal import Span

# Neither counts of nodes begin so, which are Arrow streams, nor packed ones.
_CARRIED = b"carried on: "
# The level of all periods to date, where they are no node of the temporal tree.
TO_DATE = -1
# What is carried on is filled up to a power of 2 of bytes, at least this one
# (`NoiseSource.padded_size`).
_LEAST_BYTES = 2**16


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaceCounts:
    """The exact counts of one place, of the period; and what all places carry on, at the first.

    Args:
        own: of the period.
        carried: from the run before.
    """

    own: Counts
    carried: bytes

    @property
    def total(self) -> int:
        """Sum the counts of the period's rows; carried counts were balanced in their own run."""
        return self.own.total

    def to_bytes(self) -> bytes:
        return pack_many([self.own.to_bytes(), self.carried])

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        content = hashlib.sha256(self.carried).digest()
        carried = key.digest("carried counts", release, tree, *place, content)
        return self.own.digest(key, release, tree, place) + int.from_bytes(carried, "big")


class ClosedNode(NamedTuple):
    """A closed temporal node, with all that gives its noisy counts again.

    Attributes:
        span: the node.
        seeds: `NoiseSource.spec_digest`, `global_digest` and `nonce` of its noise.
        counts: exact, by place.
    """

    span: Span
    seeds: tuple[bytes, bytes, bytes]
    counts: Mapping[Place, bytes]

    def source(self, noise: NoiseSource) -> NoiseSource:
        """The source of its noise.

        Args:
            noise: of a run, under the same key.
        """
        spec, counts, nonce = self.seeds
        return replace(noise, spec_digest=spec, global_digest=counts, own_digest=b"", nonce=nonce)


@dataclass(frozen=True, kw_only=True)
class AccumulatedPeriods(SeriesQuestion):
    """One period of a tree that is released of its period, and of all periods so far.

    Args:
        temporal, period, max_periods: as of `SeriesQuestion`.
        levels: the tree as it is measured at a node of each temporal level.

    Raises:
        ValueError: as `SeriesQuestion`, or a tree that does not accumulate.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(isinstance(each, AccumulatedTree) and each.accumulates for each in self.levels):
            raise ValueError(f"levels: tree {self.name} cannot be released of several periods")

    @staticmethod
    def level_name(name: str, span: int) -> str:
        """Return the name itself: the hash functions of sketches follow from it, and must be the
        same at all temporal levels. Streams of noise are distinguished by
        `NoiseSource.spec_digest`."""
        return name

    @property
    def needs_one_key(self) -> bool:
        # The noise of earlier runs is computed again.
        return True

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def to_date(self) -> Span:
        """All periods so far."""
        return Span(TO_DATE, 1, self.period)

    @property
    def released_spans(self) -> Sequence[Span]:
        return [*self.closing, *([] if len(self._roots) == 1 else [self.to_date])]

    def find_released(self, first: int) -> Span | None:
        """The released span that begins with a period; None where there is none.

        Args:
            first: the period.
        """
        return next((span for span in self.released_spans if span.first == first), None)

    @property
    def _roots(self) -> list[Span]:
        """The temporal nodes that all periods to date are put together from."""
        return self.temporal.roots(self.period)

    @property
    def node_variances(self) -> tuple[float, ...]:
        trees: Any = self.levels
        return tuple(each.node_variance for each in trees)

    def released_tree(self, span: Span) -> Any:
        """The tree as it is released of one of `released_spans`, for the errors of its answers."""
        if span.level != TO_DATE:
            return self.shown(span.level)
        first: Any = self.levels[0]
        return first.together([self.levels[each.level] for each in self._roots])

    # From rows to exact counts

    def place_balance(self, place: Place) -> int:
        return self.levels[0].place_balance(place)

    @property
    def carried_places(self) -> Sequence[Place]:
        return self.places[:1] if self.period > 1 else ()

    @property
    def left_places(self) -> Sequence[Place]:
        return self.places[:1] if self.period < self.temporal.periods else ()

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        carried: list[bytes] = []
        own = self.levels[0].merge(place, set_aside(partials, carried, _CARRIED))
        return PlaceCounts(own=own, carried=b"".join(carried))

    def opened(self, place: Place, sealed: bytes, key: ReleaseKey, *name: bytes | str) -> bytes:
        plain = key.opened(sealed, *self._state_name(place, *name))
        size = int.from_bytes(plain[:8], "little")
        return _CARRIED + plain[8 : 8 + size]

    # From exact counts to what is released

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        return Drawn(sent=counts, kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        unpacked = {place: unpack_many(data) for place, data in sent.items()}
        own = {place: data for place, (data, _) in unpacked.items()}
        before = self._closed_before(unpacked[self.places[0]][1])
        made = [self._closed(span, before, own, noise) for span in self.closing]
        released = [self._measured(node, noise) for node in made]
        parts = [each.tree.gather(group, each.sent, each.noise).released for each in released]
        roots = [node for node in before if node.span.last < made[-1].span.first] + made[-1:]
        if len(roots) > 1:
            earlier = [self._measured(node, noise) for node in roots[:-1]]
            whole = self.released_tree(self.to_date)
            parts.append(whole.gather_together([*earlier, released[-1]]))
        result = self._together(parts)
        if self.left_places:
            result.append(self._sealed(roots, noise))
        return Gathered({}, result)

    def _closed(
        self,
        span: Span,
        before: Sequence[ClosedNode],
        own: Mapping[Place, bytes],
        noise: NoiseSource,
    ) -> ClosedNode:
        """A temporal node that closes with the period.

        Args:
            span: the node.
            before: what had closed.
            own: the counts of the period.
            noise: of this run.
        """
        inside = [node.counts for node in before if node.span.first >= span.first]
        counts = {
            place: self.levels[0].merge(place, [*(each[place] for each in inside), data]).to_bytes()
            for place, data in own.items()
        }
        # Two nodes may hold the same rows, where periods are without any.
        spec = noise.key.digest("temporal node", noise.spec_digest, span.first, span.last)
        return ClosedNode(span, (spec, noise.global_digest, noise.nonce), counts)

    def _measured(self, node: ClosedNode, noise: NoiseSource) -> Measured:
        """The noisy counts of a closed node: the same in this run and in all later ones."""
        tree, source = self.levels[node.span.level], node.source(noise)
        sent = {
            place: tree.draw(place, counts, source).sent for place, counts in node.counts.items()
        }
        return Measured(tree, sent, source)

    def _sealed(self, roots: Sequence[ClosedNode], noise: NoiseSource) -> ReleasedPart:
        """The part that holds the nodes that later runs go on from."""
        (place,) = self.left_places
        nodes = [
            pack_many([*node.seeds, *(node.counts[each] for each in self.places)]) for node in roots
        ]
        whole = pack_many(nodes)
        plain = len(whole).to_bytes(8, "little") + whole
        size = noise.padded_size(len(plain), _LEAST_BYTES, self.name)
        name = self._state_name(place, noise.release, noise.nonce)
        sealed = noise.key.seal(plain.ljust(size, b"\0"), *name)
        table = pa.table({"sealed": pa.array([sealed], pa.large_binary())})
        return ReleasedPart(self._state_part(place), table)

    def _closed_before(self, carried: bytes) -> list[ClosedNode]:
        """The nodes that earlier runs closed, of what the run before sealed."""
        nodes = []
        spans = self.temporal.roots(self.period - 1)
        for span, data in zip(spans, unpack_many(carried), strict=True):
            spec, counts, nonce, *by_place = unpack_many(data)
            own = dict(zip(self.places, by_place, strict=True))
            nodes.append(ClosedNode(span, (spec, counts, nonce), own))
        return nodes

    def finish(self, place: Place, kept: bytes, returned: bytes) -> Sequence[ReleasedPart]:
        return ()

    def conclude(self, notes: Mapping[Part, bytes]) -> Mapping[str, pa.Table]:
        return {}

    def entry(self) -> dict[str, object]:
        """The manifest's description, with the nodes that all periods to date consist of."""
        nodes = [{"first": each.first, "last": each.last} for each in self._roots]
        return super().entry() | {"to_date": nodes}

    def _spec(self, levels: list[dict[str, object]]) -> dict[str, object]:
        return super()._spec(levels) | {"accumulated": True}
