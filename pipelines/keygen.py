"""Making a release key."""

from __future__ import annotations

import os

from dpcore.noise.randomness import ReleaseKey
from pipelines.terminal_text import print_line
from pipelines.user_error import UserError


def run_keygen(path: str) -> int:
    """Writes a new key to a new file with mode 0600.

    Raises:
        UserError: the file exists already, or cannot be made.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path} exists already; a key is never overwritten") from None
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(ReleaseKey.generate().to_text() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        os.unlink(path)
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    print_line(
        f"{path}: a new release key, for you alone to read. Keep it secret and keep it safe:"
    )
    print_line("whoever has it can remove the noise of every release made under it.")
    return 0
