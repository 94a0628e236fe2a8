"""What a release draws, to which exact counts it adds it, and what follows from the sums alone.

The release runs as it is, through `dpcore.release.released.release_counts`. Only the `sample`
methods of the laws are exchanged, for ones whose noise records what it is added to: whatever module
draws, and however it came to its counts, is recorded. A second release may be given the noisy
counts of a first one: what it publishes must then be the same, for else something exact got past
the noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import Bits, PlacedStreams, ReleaseKey
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.sparse import question as sparse_question

# The tree, the key, the chunk, the level, and how many draws that stream had before; of noise that
# is drawn where nodes are looked at, the purpose is in the key's place, and how often is counted by
# the looks at a level.
Place = tuple[str, int | str, int, int, int]
SECRET = bytes(range(32))
LAWS = (DiscreteLaplace, DiscreteGaussian, TruncatedLaplace)


def plan_of(question: Any, budget: Budget, stated: Any = None) -> ReleasePlan:
    """The release of one question; stated: its (epsilon, delta), if it states one."""
    return ReleasePlan(
        name="r", unit=question.unit, budget=budget, questions=(question,), stated=stated
    )


def stated_plan(question: Any, epsilon: Fraction, delta: Fraction) -> ReleasePlan:
    """The release of one question that spends an (epsilon, delta)."""
    budget = Budget(measure=Measure.EPSILON, amount=epsilon)
    return plan_of(question, budget, (epsilon, delta))


def shuffled_pair(
    rng: Random, others: list[Any], before: list[Any], after: list[Any]
) -> Iterator[list[Any]]:
    """Yield two tables that differ in the rows of one unit, each in an order of its own."""
    for own in (before, after):
        rows = [*others, *own]
        rng.shuffle(rows)
        yield rows


class NamedStream:
    """A keystream that knows its name; only the exchanged `sample` methods read it."""

    def __init__(self, name: tuple[Any, ...], bits: Bits) -> None:
        self.name, self.bits, self.draws = name, bits, 0

    def next_place(self) -> Place:
        """Where the next draw belongs."""
        tree, key, chunk, level = self.name[-4:]
        self.draws += 1
        return tree, key, chunk, level, self.draws - 1

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that the streams belong to, where each node has one."""
        return ()


class NamedNodes(NamedStream):
    """The keystreams of some nodes of a level; each draw takes one."""

    def __init__(self, name: tuple[Any, ...], bits: PlacedStreams, looks: int) -> None:
        super().__init__(name, bits)
        self._looks = looks

    def next_place(self) -> Place:
        tree, purpose, level = self.name[-4:-1]
        self.draws += 1
        assert self.draws == 1, "nodes are drawn from twice"
        return tree, purpose, 0, level, self._looks

    @property
    def nodes(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.name[-1]
        return found


class NamingKey(ReleaseKey):
    """A key whose streams of noise know their names, and which remembers these."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self.names: list[tuple[Any, ...]] = []
        self._looks: Counter[tuple[Any, ...]] = Counter()

    def stream(self, *parts: Any) -> Any:
        own = super().stream(*parts)
        if parts[0] == "sketch":  # of hash functions: the same for all data, and no noise
            return own
        self.names.append(parts)
        return NamedStream(parts, own)

    def placed_streams(self, places: Any, *parts: Any) -> Any:
        nodes = tuple(places.tolist())
        self.names += [(*parts, node) for node in nodes]
        self._looks[parts] += 1
        own = super().placed_streams(places, *parts)
        return NamedNodes((*parts, nodes), own, self._looks[parts] - 1)


@dataclass(kw_only=True, eq=False)
class Draw:
    """Noise of one law, and what became of it.

    Attributes:
        law: it was drawn from.
        size: how many draws.
        nodes: to which each belongs, where nodes have keystreams of their own.
        exact: what it was added to, (size,); None as long as it was added to nothing.
        noisy: the sums, (size,).
    """

    law: NoiseLaw
    size: int
    nodes: tuple[int, ...] = ()
    exact: Integers | None = None
    noisy: Integers | None = None


class Noise(np.ndarray[Any, Any]):
    """Noise that records what it is added to, and can do nothing else."""

    added: Callable[[Any, Integers], Any]

    def __array_finalize__(self, origin: Any) -> None:
        self.added = getattr(origin, "added", None)  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.add or method != "__call__" or options or len(inputs) != 2:
            raise TypeError(f"noise is used otherwise than by adding it: {ufunc}")
        exact = inputs[1] if inputs[0] is self else inputs[0]
        return self.added(exact, np.asarray(self).view(np.ndarray))

    @classmethod
    def of(cls, values: Integers, added: Callable[[Any, Integers], Any]) -> Noise:
        """Noise that calls ``added(exact, noise)`` instead of adding."""
        noise = values.view(cls)
        noise.added = added
        return noise


@contextmanager
def exchanged_samples(drawn: Callable[[NoiseLaw, NamedStream, int], Any]) -> Iterator[None]:
    """While this lasts, named streams are drawn from by ``drawn(law, stream, size)``."""
    with ExitStack() as stack:
        for law_type in LAWS:
            own = law_type.sample

            def sample(law: Any, stream: Any, size: int, own: Any = own) -> Any:
                named = isinstance(stream, NamedStream)
                return drawn(law, stream, size) if named else own(law, stream, size)

            stack.enter_context(patch.object(law_type, "sample", sample))
        yield


@dataclass(kw_only=True, eq=False)
class Recorded:
    """A release and how it came about.

    Attributes:
        release: what is public.
        draws: by place.
        names: of all keystreams.
        shards: of sparse trees, the arguments of every call of `publish_shard`, and what it gave.
    """

    release: ReleaseReader | None = None
    draws: dict[Place, Draw] = field(default_factory=dict)
    names: list[tuple[Any, ...]] = field(default_factory=list)
    shards: dict[tuple[str, int, int], tuple[tuple[Any, ...], NodeCounts]] = field(
        default_factory=dict
    )

    def check(self, *, again: bool = False) -> None:
        """Check that all noise was used, and that no keystream was used twice.

        Args:
            again: what was drawn may be computed again, see `recorded`.
        """
        unused = [place for place, draw in self.draws.items() if draw.size and draw.exact is None]
        assert not unused, f"noise was drawn and added to nothing at {unused[0]}"
        assert again or len(set(self.names)) == len(self.names), "a keystream was used twice"


class NoisyCount(NamedTuple):
    """A number that noise was added to."""

    law: NoiseLaw
    exact: int
    noisy: int


# By the name of the keystream, the node, and the place in what was drawn.
KnownCounts = dict[tuple[Any, ...], NoisyCount]


Wanted = Callable[[Place, Draw], Integers | None]


def recorded_release(
    plan: ReleasePlan,
    counts: Mapping[str, Integers],
    wanted: Wanted = lambda place, draw: None,
) -> Recorded:
    """A release of exact counts with a record of its draws.

    Args:
        plan, counts: as for `dpcore.release.released.release_counts`.
        wanted: the noisy counts to use at a place instead of exact counts and noise, if any.
    """
    return recorded(lambda key: release_counts(plan=plan, counts=counts, key=key), wanted)


def recorded(
    make: Callable[[ReleaseKey], ReleaseReader],
    wanted: Wanted = lambda place, draw: None,
    known: KnownCounts | None = None,
) -> Recorded:
    """A release with a record of its draws.

    Args:
        make: makes it under a key.
        wanted: as of `recorded_release`.
        known: the noisy counts of earlier runs of a series, to which new ones are added. A run may
            compute them again, from the same exact counts; that is no draw.
    """
    found, key = Recorded(), NamingKey(SECRET)
    publish = sparse_question.publish_shard

    def drawn(law: NoiseLaw, stream: NamedStream, size: int) -> Any:
        if known is not None:
            return _drawn_in_a_series(found, law, stream, size, wanted, known)
        place, draw = stream.next_place(), Draw(law=law, size=size, nodes=stream.nodes)
        assert place not in found.draws, f"two draws at {place}"
        found.draws[place] = draw

        def added(exact: Any, noise: Integers) -> Integers:
            assert draw.exact is None and np.size(exact) in (1, size), f"noise reused at {place}"
            base = np.broadcast_to(np.asarray(exact, np.int64), noise.shape)
            draw.exact = base.reshape(-1).copy()
            chosen = wanted(place, draw)
            noisy = base + noise if chosen is None else chosen.reshape(noise.shape)
            draw.noisy = noisy.reshape(-1).copy()
            return noisy

        return Noise.of(law.sample(stream.bits, size), added)

    def published(*arguments: Any) -> NodeCounts:
        given = publish(*arguments)
        found.shards[arguments[2:5]] = arguments, given
        return given

    with exchanged_samples(drawn), patch.object(sparse_question, "publish_shard", published):
        found.release = make(key)
    found.names = key.names
    found.check(again=known is not None)
    return found


def _drawn_in_a_series(
    found: Recorded,
    law: NoiseLaw,
    stream: NamedStream,
    size: int,
    wanted: Wanted,
    known: KnownCounts,
) -> Noise:
    """Noise, a part of it drawn before."""
    *where, number = stream.next_place()
    if stream.nodes:
        names = [(*stream.name[:-1], node) for node in stream.nodes]
    else:
        names = [(*stream.name, number, each) for each in range(size)]
    new = np.array([name not in known for name in names], bool)
    nodes = tuple(node for node, own in zip(stream.nodes, new, strict=False) if own)
    draw = Draw(law=law, size=int(new.sum()), nodes=nodes)
    place = (*where, number)
    while place in found.draws:
        place = (*where, place[-1] + 1)
    if draw.size:
        found.draws[place] = draw  # type: ignore[index]

    def added(exact: Any, noise: Integers) -> Integers:
        base = np.broadcast_to(np.asarray(exact, np.int64), noise.shape).reshape(-1)
        noisy = base + noise.reshape(-1)
        draw.exact = base[new]
        chosen = wanted(place, draw) if draw.size else None  # type: ignore[arg-type]
        noisy[new] = noisy[new] if chosen is None else chosen
        draw.noisy = noisy[new]
        for at, name in enumerate(names):
            own = known.setdefault(name, NoisyCount(law, int(base[at]), int(noisy[at])))
            assert own[:2] == (law, base[at]), f"noise was used for two counts at {place}"
            noisy[at] = own.noisy
        return noisy.reshape(noise.shape)

    return Noise.of(law.sample(stream.bits, size), added)


def public_output(release: ReleaseReader) -> dict[Any, str]:
    """All that a release shows, by part, as strings that contain every bit."""
    parts = {("quantiles",): repr(release.quantiles and release.quantiles.to_pydict())}
    for question in release.plan.questions:
        for each in question.parts():
            part = (each.kind, each.tree, each.key, each.index)
            parts[part] = repr(release._read(*part).to_pydict())
    return parts
