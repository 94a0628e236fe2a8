"""The nonce of a folder: drawn once, by the first process, and part of every seed."""

import json
import threading

import pytest

from dptrees.dpcore.noise.randomness import NONCE_BYTES
from dptrees.transforms.folder.existing_release import (
    NonceError,
    folder_nonce,
    key_id_of_folder,
    restored_nonce,
)
from dptrees.transforms.folder.layout import NONCE


def test_drawn_once_for_a_folder(tmp_path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    nonce = folder_nonce(one)
    assert len(nonce) == NONCE_BYTES and folder_nonce(one) == nonce
    assert json.loads((tmp_path / "one" / NONCE).read_text()) == {"nonce": nonce.hex()}
    assert folder_nonce(other) != nonce


def test_fixed(tmp_path) -> None:
    folder, nonce = str(tmp_path / "out"), bytes(range(NONCE_BYTES))
    assert folder_nonce(folder, nonce) == nonce == folder_nonce(folder)
    with pytest.raises(NonceError, match="has another nonce already; choose another output"):
        folder_nonce(folder, bytes(NONCE_BYTES))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nonce": 3}', '{"nonce": "00"}'])
def test_damaged(tmp_path, text: str) -> None:
    (tmp_path / NONCE).write_text(text)
    with pytest.raises(NonceError, match=f"{NONCE} is damaged"):
        folder_nonce(str(tmp_path))
    assert (tmp_path / NONCE).read_text() == text


def test_two_launchers_at_once_get_the_same(tmp_path) -> None:
    for attempt in range(20):
        folder, found = str(tmp_path / str(attempt)), []
        barrier = threading.Barrier(2)

        def draw(folder=folder, found=found, barrier=barrier) -> None:
            barrier.wait()
            found.append(folder_nonce(folder))

        threads = [threading.Thread(target=draw) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 2 and len(set(found)) == 1


def test_the_id_of_the_key_goes_with_the_nonce(tmp_path) -> None:
    folder = str(tmp_path / "out")
    assert key_id_of_folder(folder) is None
    nonce = folder_nonce(folder, key_id="0123456789abcdef")
    assert key_id_of_folder(folder) == "0123456789abcdef"
    assert folder_nonce(folder, key_id="0123456789abcdef") == folder_nonce(folder) == nonce
    with pytest.raises(NonceError, match="was begun under the key 0123456789abcdef, not fe"):
        folder_nonce(folder, key_id="fedcba9876543210")
    (tmp_path / "out" / NONCE).write_text(json.dumps({"nonce": nonce.hex()}))
    assert key_id_of_folder(folder) == ""
    assert folder_nonce(folder, key_id="fedcba9876543210") == nonce
    assert restored_nonce(folder, nonce.hex(), "0123456789abcdef") == nonce
    assert key_id_of_folder(folder) == ""
    (tmp_path / "out" / NONCE).write_text("{")
    assert restored_nonce(folder, nonce.hex(), "0123456789abcdef") == nonce
    assert key_id_of_folder(folder) == "0123456789abcdef"
