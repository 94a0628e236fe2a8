"""The nonce of a folder: public, drawn once by the system's randomness, before the job starts.

It is part of every seed of noise. Without it noise would be a function of key, specification and
exact counts alone, and two folders would show, byte by byte, whether their counts are equal. Runs
into one folder find the nonce there, so that a retry draws the same bits; and beside it the public
id of the key, which may have been rotated meanwhile.
"""

import json

from dptrees.dpcore.noise.randomness import NONCE_BYTES, draw_nonce
from dptrees.transforms import files
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.layout import MANIFEST, NONCE


class NonceError(ReleaseError):
    """The folder has another nonce, or one that cannot be read."""


def key_id_of_folder(folder: str) -> str | None:
    """The id of the key under which the release in a folder was made or begun.

    Args:
        folder: on any Beam filesystem.

    Returns:
        None where nothing was begun; "" where it was before keys had ids.

    Raises:
        OutputError: the filesystem does not let it be read.
    """
    for name in (MANIFEST, NONCE):
        path = files.join(folder, name)
        if files.exists(path):
            return _key_id(files.read_bytes(path))
    return None


def _key_id(text: bytes) -> str:
    try:
        return str(json.loads(text).get("key_id", ""))
    except (ValueError, AttributeError):
        return ""  # damaged, which is reported where it is used


def folder_nonce(folder: str, fixed: bytes | None = None, key_id: str = "") -> bytes:
    """The nonce of a folder; draws and writes it where there is none.

    Args:
        folder: of the release, on any Beam filesystem.
        fixed: the nonce to use, only to compare engines or files; None: draw one.
        key_id: of the release key; "" where the launcher has none.

    Returns:
        `NONCE_BYTES` bytes. The first writer's bytes: two launchers at once get the same on a local
        disk. Object stores let both write; then the record distinguishes them.

    Raises:
        NonceError: the folder has another nonce than the fixed one, or a damaged one.
        OutputError: it cannot be written.
    """
    path = files.join(folder, NONCE)
    if not files.exists(path):
        nonce = draw_nonce() if fixed is None else fixed
        files.write_once(path, _data(nonce.hex(), key_id))
    text = files.read_bytes(path)
    result = parse_nonce(text)
    if result is None:
        raise NonceError(
            f"output: {path} is damaged; discard what the folder holds, or choose another"
        )
    if fixed is not None and result != fixed:
        raise NonceError(f"nonce: {folder} has another nonce already; choose another output")
    if key_id and _key_id(text) not in ("", key_id):
        raise NonceError(
            f"key: {folder} was begun under the key {_key_id(text)}, not {key_id}; run it again"
        )
    return result


def _data(nonce: str, key_id: str) -> bytes:
    entries = {"nonce": nonce} | ({"key_id": key_id} if key_id else {})
    return (json.dumps(entries) + "\n").encode()


def check_begun(folder: str, nonce: bytes) -> None:
    """Sees that a folder still has the nonce that a job was made for. A job may outlive its folder,
    in a jar or a template that is run again: in a folder that is gone, or was begun anew, it would
    draw a second time under a nonce that was used.

    Raises:
        NonceError: it has none, or another.
    """
    path = files.join(folder, NONCE)
    if not files.exists(path) or parse_nonce(files.read_bytes(path)) != nonce:
        raise NonceError(
            f"output: {folder} no longer has the unfinished release that this job was made for; "
            "make the job again"
        )


def restored_nonce(folder: str, nonce: str, key_id: str = "") -> bytes:
    """The nonce of a finished release, which its manifest holds; writes it where it is lost.

    Args:
        folder: of the release.
        nonce, key_id: as the manifest has them, in hexadecimal.
    """
    path, restored = files.join(folder, NONCE), bytes.fromhex(nonce)
    if not files.exists(path) or parse_nonce(files.read_bytes(path)) != restored:
        files.write_whole(path, _data(nonce, key_id))
    return restored


def parse_nonce(text: bytes) -> bytes | None:
    """The nonce in a file's bytes; None where they are damaged.

    >>> parse_nonce(b'{"nonce": "000102030405060708090a0b0c0d0e0f"}').hex()[:6]
    '000102'
    >>> parse_nonce(b'{"nonce": "00"}') is None
    True
    """
    try:
        nonce = bytes.fromhex(json.loads(text)["nonce"])
    except (ValueError, TypeError, KeyError):
        return None
    return nonce if len(nonce) == NONCE_BYTES else None
