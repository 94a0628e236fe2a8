"""The graph of a job in plain classes: steps, their elements, and what is grouped.

    rows | "Count" >> flow.Each(CountBundle(plan, key), also=("balance",), main="counts")

A step has the life cycle that Beam gives a DoFn. A transform is made of other transforms, in the
end of the six primitives here, and the graph has no engine: the loop of this machine
(`pipelines.run.loop`) runs it directly, and `transforms.beam.adapter` makes the same graph of
Beam's own transforms. So every engine runs the same steps, in one order, under the same labels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

MAIN = "main"
Types = Mapping[str, Any]
Made = TypeVar("Made", bound="type[Step]")


class Tagged(NamedTuple):
    """An element of another output than the main one.

    Attributes:
        output: the name of the output.
        element: the element itself.
    """

    output: str
    element: Any


class Step:
    """A function of elements: it takes one at a time and yields any number of elements.

    An executor makes a copy for each thread or worker and calls `setup`; then, for each bundle,
    `start_bundle`, `process` for each element and `finish_bundle`; in the end `teardown`. An engine
    may run a bundle again, in another copy. An element that is `Tagged` goes to the output of its
    tag.
    """

    # The types of the elements by output; an engine encodes them by their types.
    types: ClassVar[Types] = {}

    def setup(self) -> None:
        """Load what lasts longer than a bundle."""

    def start_bundle(self) -> None:
        """Begin a bundle."""

    process: Callable[..., Iterator[Any]]
    """Yields what becomes of an element; behind it come the sides of the step, whole."""

    def finish_bundle(self) -> Iterator[Any]:
        """Yield what is left when a bundle ends."""
        return iter(())

    def teardown(self) -> None:
        """Let go what `setup` loaded."""


def gives(main: Any, **tagged: Any) -> Callable[[Made], Made]:
    """State the types of the elements that a step yields.

    Args:
        main: of the main output.
        tagged: of the others, by tag.

    >>> @gives(int, balance=tuple[str, int])
    ... class Halves(Step): ...
    >>> Halves.types["main"]
    <class 'int'>
    """

    def typed(step: Made) -> Made:
        step.types = {MAIN: main, **tagged}
        return step

    return typed


class Transform:
    """A part of a graph, made of other transforms.

    `given | "Label" >> transform` adds it to the graph of what is given: a `Flow`, a `Collection`,
    or several of them as a tuple.
    """

    def expand(self, given: Any) -> Any:
        """Add the transform to the graph of what it takes; return what it gives."""
        raise NotImplementedError

    def __rrshift__(self, label: str) -> "_Labeled":
        return _Labeled(label, self)


@dataclass(frozen=True)
class _Labeled:
    label: str
    transform: Transform

    def __ror__(self, given: Any) -> Any:
        with flow_of(given).within(self.label):
            return self.transform.expand(given)


@dataclass(frozen=True)
class Collection:
    """The elements of an output, which steps may take.

    Attributes:
        flow: the graph.
        number: of the node that gives them, in the order of the graph; below 0: an input of the
            graph.
        output: its name.
    """

    flow: "Flow"
    number: int
    output: str = MAIN


@dataclass(frozen=True)
class AsList:
    """All elements of a collection, as a list, beside the elements that a step takes one by one."""

    of: Collection


@dataclass(frozen=True)
class AsDict(AsList):
    """All elements of a collection of pairs, as a dictionary, beside the elements of a step."""


class Primitive(Transform):
    """A transform that executors know."""

    outputs: Sequence[str] = (MAIN,)
    sides: Sequence[Any] = ()

    def expand(self, given: Any) -> Any:
        flow = flow_of(given)
        taken = given if isinstance(given, (tuple, list)) else [given]
        found = flow.add(self, [each for each in taken if isinstance(each, Collection)])
        return found if len(self.outputs) > 1 else found[self.outputs[0]]


class Given(Primitive):
    """Elements that are known when the graph is built."""

    def __init__(self, elements: Sequence[Any]) -> None:
        self.elements = list(elements)


class Each(Primitive):
    """The outputs of a step for each element.

    Args:
        step: the step.
        sides: what it takes beside: `AsList`, `AsDict`, or values as they are.
        also: the tags of other outputs; without any the result is a collection, else a dictionary
            of them by name.
        main: the name of the main output.
    """

    def __init__(self, step: Step, *sides: Any, also: Sequence[str] = (), main: str = MAIN) -> None:
        self.step, self.sides, self.outputs = step, sides, (main, *also)


class Group(Primitive):
    """Pairs of a key and a value to each key with all its values, which can be read once."""


class Combine(Primitive):
    """Pairs of a key and a value to each key with its values combined, two by two, in any order.

    Args:
        function: of two values; it must not matter which are combined first.
        type: of the values.
        by_key: otherwise the elements are values, and one comes of all; none of none.
    """

    def __init__(self, function: Callable[[Any, Any], Any], type: Any, *, by_key: bool = True):
        self.function, self.type, self.by_key = function, type, by_key


class Join(Primitive):
    """The elements of several collections as one."""


class Spread(Primitive):
    """The same elements, spread over all workers."""


@dataclass(frozen=True)
class Node:
    """A primitive in a graph.

    Attributes:
        label: its path of labels.
        primitive: what it does.
        inputs: what it takes.
    """

    label: str
    primitive: Primitive
    inputs: Sequence[Collection]


@dataclass(eq=False)
class Flow:
    """A graph. A node comes after the nodes whose outputs it takes.

    Args:
        unit_shards: in how many parts the rows of privacy units are bounded, if someone chose so;
            None: the plan or `planned_shards` says.
        planned_shards: as many as the number of workers wants.

    >>> flow = Flow()
    >>> numbers = flow | "Numbers" >> Given([1, 2])
    >>> [node.label for node in flow.nodes]
    ['Numbers']
    """

    unit_shards: int | None = None
    planned_shards: int = 64
    nodes: list[Node] = field(default_factory=list)
    _path: list[str] = field(default_factory=list)
    _inputs: int = 0

    def input(self) -> Collection:
        """Return a collection that the executor gives."""
        self._inputs += 1
        return Collection(self, -self._inputs)

    @contextmanager
    def within(self, label: str) -> Iterator[None]:
        """Let the labels of what is added in the block begin with a label."""
        self._path.append(label)
        try:
            yield
        finally:
            self._path.pop()

    def add(self, primitive: Primitive, inputs: Sequence[Collection]) -> dict[str, Collection]:
        """Add a primitive under the labels of the block; return its outputs by name.

        Raises:
            ValueError: another one has the same label.
        """
        label = "/".join(self._path)
        if any(node.label == label for node in self.nodes):
            raise ValueError(f"the graph has two steps {label!r}")
        self.nodes.append(Node(label, primitive, tuple(inputs)))
        number = len(self.nodes) - 1
        return {name: Collection(self, number, name) for name in primitive.outputs}


def flow_of(given: Any) -> Flow:
    """Return the graph of what a transform takes.

    Raises:
        TypeError: it is of none.
    """
    if isinstance(given, Flow):
        return given
    if isinstance(given, Collection):
        return given.flow
    for each in given if isinstance(given, (tuple, list)) else ():
        return flow_of(each)
    raise TypeError(f"{type(given).__name__}: is of no graph")
