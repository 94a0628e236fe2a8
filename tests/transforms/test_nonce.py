"""The nonce of a folder: drawn once, by the first process, and part of every seed."""

import json

import pytest

from dptrees.dpcore.noise.randomness import NONCE_BYTES
from dptrees.transforms.folder.existing_release import (
    NonceError,
    folder_nonce,
    key_id_of_folder,
    restored_nonce,
)
from dptrees.transforms.folder.names import NONCE
from tests.transforms.at_once import run_at_once


def test_drawn_once_for_a_folder(tmp_path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    nonce = folder_nonce(one)
    assert len(nonce) == NONCE_BYTES and folder_nonce(one) == nonce
    assert json.loads((tmp_path / "one" / NONCE).read_text()) == {"nonce": nonce.hex()}
    fixed = bytes(range(NONCE_BYTES))
    assert folder_nonce(other, fixed) == fixed == folder_nonce(other)
    with pytest.raises(NonceError, match="has another nonce already; choose another output"):
        folder_nonce(other, bytes(NONCE_BYTES))
    for attempt in range(20):  # two launchers at once get the same
        folder = str(tmp_path / str(attempt))
        first, second = run_at_once(*[lambda folder=folder: folder_nonce(folder)] * 2)
        assert first == second == folder_nonce(folder) != nonce


def test_damaged(tmp_path) -> None:
    for text in ("", "{", "[]", "{}", '{"nonce": 3}', '{"nonce": "00"}'):
        (tmp_path / NONCE).write_text(text)
        with pytest.raises(NonceError, match=f"{NONCE} is damaged"):
            folder_nonce(str(tmp_path))
        assert (tmp_path / NONCE).read_text() == text


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
