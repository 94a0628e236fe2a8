"""The nonce of a folder: public, drawn once by the system's randomness, before the job starts.

It is part of every seed of noise. Without it noise would be a function of key, specification and
exact counts alone, and two folders would show, byte by byte, whether their counts are equal. Runs
into one folder find the nonce there, so that a retry draws the same bits.
"""

import json

from dpcore.noise.randomness import NONCE_BYTES, draw_nonce
from transforms import files
from transforms.errors import ReleaseError
from transforms.layout import NONCE


class NonceError(ReleaseError):
    """The folder has another nonce, or one that cannot be read."""


def folder_nonce(folder: str, fixed: bytes | None = None) -> bytes:
    """The nonce of a folder; draws and writes it where there is none.

    Args:
        folder: of the release, on any Beam filesystem.
        fixed: the nonce to use, only to compare engines or files; None: draw one.

    Returns:
        `NONCE_BYTES` bytes. Whoever wrote it first: of two launchers at once, both get the same on
        a local disk. Object stores let both write; then the record tells them apart.

    Raises:
        NonceError: the folder has another nonce than the fixed one, or a damaged one.
        OutputError: it cannot be written.
    """
    path = files.join(folder, NONCE)
    if not files.exists(path):
        nonce = draw_nonce() if fixed is None else fixed
        files.write_once(path, (json.dumps({"nonce": nonce.hex()}) + "\n").encode())
    found = nonce_of(files.read_bytes(path))
    if found is None:
        raise NonceError(
            f"output: {path} is damaged; discard what the folder holds, or choose another"
        )
    if fixed is not None and found != fixed:
        raise NonceError(f"nonce: {folder} has another nonce already; choose another output")
    return found


def restored_nonce(folder: str, nonce: str) -> bytes:
    """The nonce of a finished release, which its manifest holds; writes it where it is lost.

    Args:
        folder: of the release.
        nonce: as the manifest has it, in hexadecimal.
    """
    path, data = files.join(folder, NONCE), (json.dumps({"nonce": nonce}) + "\n").encode()
    if not files.exists(path) or files.read_bytes(path) != data:
        files.write_whole(path, data)
    return bytes.fromhex(nonce)


def nonce_of(text: bytes) -> bytes | None:
    """The nonce that a file's bytes tell; None where they are damaged.

    >>> nonce_of(b'{"nonce": "000102030405060708090a0b0c0d0e0f"}').hex()[:6]
    '000102'
    >>> nonce_of(b'{"nonce": "00"}') is None
    True
    """
    try:
        nonce = bytes.fromhex(json.loads(text)["nonce"])
    except (ValueError, TypeError, KeyError):
        return None
    return nonce if len(nonce) == NONCE_BYTES else None
