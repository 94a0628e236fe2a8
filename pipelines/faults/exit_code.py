"""The exit codes of the command, for schedulers (docs/exit-codes.md)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended, in the numbers of sysexits.h and of shells."""

    DONE = 0
    FAULT = 1  # of the program, with a traceback
    MISTAKE = 2  # the user's to fix, as argparse has it
    AGAIN = 75  # may pass by itself: EX_TEMPFAIL
    STOPPED = 130  # by SIGINT: 128 + 2
    TERMINATED = 143  # by SIGTERM: 128 + 15
