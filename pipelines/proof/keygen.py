"""``dptrees keygen``: making release keys and signing keys, and rotating release keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.process import UserError
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.keys import LARGEST_TEXT, KeyReference


def write_release_key(path: str) -> None:
    """Write a new key to a new file with mode 0600.

    Raises:
        UserError: the file exists already, or cannot be made.
    """
    write_new(path, ReleaseKey.generate().to_text() + "\n")


def run_keygen(path: str) -> int:
    """Make a new key, and say how to treat it; raises as `write_release_key`."""
    write_release_key(path)
    print_line(
        f"{path}: a new release key, for you alone to read. Keep it secret and keep it safe:"
    )
    print_line("anyone who has it can remove the noise of every release made under it.")
    return 0


def run_signing_keygen(path: str) -> int:
    """Writes a new pair of signing keys: the private one with mode 0600, the public one beside it.

    Raises:
        UserError: one of the files exists already, or cannot be made.
    """
    from dptrees.pipelines.proof.signature import PUBLIC_SUFFIX, new_signing_key

    private, public = new_signing_key()
    write_new(path, private)
    try:
        write_new(path + PUBLIC_SUFFIX, public, mode=0o644)
    except UserError:
        os.unlink(path)
        raise
    print_line(
        f"{path}: a new signing key, for you alone to read; name it as signing_key in "
        "configurations."
    )
    print_line(
        f"{path}{PUBLIC_SUFFIX}: its public key. Give it to people who check releases with: "
        f"dptrees verify RELEASE --signer {path}{PUBLIC_SUFFIX}"
    )
    return 0


def run_rotation(path: str) -> int:
    """Makes a new key the current one of a key file, and keeps the others as retired.

    The file is replaced in one step, so anyone who reads it, or is killed, finds the old keys or
    the old ones and the new one.

    Raises:
        UserError: the file cannot be replaced, or would grow too large.
        KeyReferenceError: it is no file of release keys, or not its user's alone.
    """
    with _alone(path) as place:
        ring = KeyReference(reference=f"file:{path}").ring().rotated(ReleaseKey.generate())
        text = ring.to_text()
        if len(text) > LARGEST_TEXT:
            raise UserError(f"{path} holds as many keys as it can; remove retired ones first")
        _replace(place, text)
    current, *retired = ring.ids
    print_line(f"{path}: the current key, for new releases, is now {current}.")
    print_line(
        "Retired keys, kept for the releases that were begun or made with them: "
        f"{', '.join(retired)}. Delete the line of a retired key only if none of its releases "
        "must still be finished, repaired or verified."
    )
    return 0


def write_new(path: str, text: str, *, mode: int = 0o600) -> None:
    """Writes a text to a new file, whole or not at all.

    Raises:
        UserError: the file exists already, or cannot be made.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise UserError(f"{path} exists already; a key is never overwritten") from None
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        os.unlink(path)
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _alone(path: str) -> Iterator[str]:
    """Lets one rotation at a time work in the folder of a key file: of two at once, the key of one
    would be lost. Yields the file itself, wherever a link leads to it."""
    place = os.path.realpath(path)
    try:
        folder = os.open(os.path.dirname(place), os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield place
        finally:
            os.close(folder)
    except OSError as error:
        raise UserError(f"{path} cannot be rotated: {error.strerror}") from None


def _replace(place: str, text: str) -> None:
    folder, name = os.path.split(place)
    # Of one name, so that what a killed rotation left goes with the next one; its key is unused.
    beside = os.path.join(folder, f".{name}.rotated")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    write_new(beside, text)
    try:
        os.replace(beside, place)
    except OSError:
        os.unlink(beside)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new key must not be lost once it is reported
    finally:
        os.close(handle)
