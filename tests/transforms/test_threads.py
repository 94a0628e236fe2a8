"""What threads share, they may share: no encryptor is used by another thread than made it.

Some versions of cryptography raise an error where two threads use one, others give wrong bytes now
and then. Here each encryptor watches who uses it, so that one that a cache hands to a second thread
is found with every version, without a race.

`tests.pipelines.run.test_threads` releases many rows on several threads at once.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher

from dptrees.dpcore.noise import randomness
from dptrees.dpcore.noise.randomness import KeyedBlocks, ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.transforms.keys import KeyReference
from tests.transforms import every_kind
from tests.transforms.eager import release_table
from tests.transforms.every_kind import ROWS


class WatchedCipher(Cipher):  # type: ignore[type-arg]
    """A cipher whose encryptors refuse a second thread."""

    def encryptor(self) -> Any:
        return _Watched(super().encryptor())


class _Watched:
    def __init__(self, encryptor: Any) -> None:
        self._encryptor, self._thread = encryptor, threading.get_ident()

    def update_into(self, data: Any, out: Any) -> int:
        assert threading.get_ident() == self._thread, "two threads use one encryptor"
        return int(self._encryptor.update_into(data, out))


@pytest.fixture(autouse=True, scope="module")
def watched() -> Iterator[None]:
    """Encryptors are watched, and no cache has one that was made before."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and "dptrees" in each.__module__:
            each.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "Cipher", WatchedCipher)
        yield


def on_two_threads(work: Callable[[int], Any]) -> list[Any]:
    """The results of two threads, which are there at the same time and work one after the other."""
    results: list[Any] = []
    turns = [threading.Event() for _ in range(3)]

    def run(number: int) -> None:
        turns[number].wait()
        try:
            results.append(work(number))
        except BaseException as error:
            results.append(error)
        turns[number + 1].set()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    turns[0].set()
    for thread in threads:
        thread.join()
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results


@pytest.mark.parametrize("kind", every_kind.PLANS)
def test_threads_that_release_share_no_encryptor(
    kind: str, reference: KeyReference, tmp_path: Path
) -> None:
    plan = every_kind.PLANS[kind]()

    def release(number: int) -> dict[str, bytes]:
        folder = tmp_path / str(number)
        release_table(plan, ROWS, reference, str(folder), bytes(16))
        return {each.name: each.read_bytes() for each in folder.rglob("*.parquet")}

    first, second = on_two_threads(release)
    assert first == second


def test_threads_may_share_what_hashes() -> None:
    blocks = ReleaseKey(bytes(32)).blocks("choice")
    given = np.arange(2000, dtype=np.uint64).reshape(-1, 2)
    first, second = on_two_threads(lambda _: blocks(given))
    assert (first == second).all()


def test_an_encryptor_that_a_cache_hands_on_is_found() -> None:
    """The fault that this test is for: values hashed by one permutation of the whole process."""

    class OneEncryptor(KeyedBlocks):
        def __init__(self, seed: bytes) -> None:
            self._stream = randomness.RandomStream(seed)

        def __call__(self, blocks: Any) -> Any:
            return blocks ^ self._stream.uint64(blocks.size).reshape(blocks.shape)

    cached = functools.lru_cache(OneEncryptor)
    question = every_kind.PLANS["distinct"]().questions[0]
    choices = KeyedChoices(key=ReleaseKey(bytes(32)), release="r")
    question = question.with_choices(choices)

    def read(_: int) -> Any:
        object.__setattr__(question, "blocks", cached(bytes(32)))
        return question.increments({"number": ROWS["number"].combine_chunks()})

    with pytest.raises(AssertionError, match="two threads use one encryptor"):
        on_two_threads(read)
