"""Text that the command prints for a person: no text of a release may steer the terminal.

Labels come from tables, from others' releases and, in sparse trees, from the rows. Control
characters could erase lines or forge an answer, bidirectional overrides turn one around: they
are shown escaped. Every line that the command prints passes through this module, and a test
checks that no other prints. Source of the overrides: Boucher, Anderson 2021, "Trojan Source:
Invisible Vulnerabilities".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["escaped", "print_csv", "print_json", "print_line"]

_CONTROLS = (
    *range(0x00, 0x20),  # C0
    *range(0x7F, 0xA0),  # DELETE and C1
    *(0x2028, 0x2029),  # separators of lines and of paragraphs
    *range(0x202A, 0x202F),  # bidirectional embeddings and overrides
    *range(0x2066, 0x206A),  # bidirectional isolates
    *range(0xD800, 0xE000),  # surrogates: bytes of a path that are no text, which no stream takes
)
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _CONTROLS}


def escaped(text: str) -> str:
    r"""A text as it is shown: control characters by their escapes, anything else as it is.

    Escaping twice changes nothing more, so that text may be escaped before it is aligned.

    Args:
        text: in one line; a line break is escaped too.

    Returns:
        text without C0 and C1 control characters, DELETE, separators of lines and paragraphs,
        bidirectional embeddings, overrides and isolates, and surrogates.

    >>> print(escaped("JFK\x1b[2J/LAX\n"), escaped("München \u202egnp.exe"))
    JFK\x1b[2J/LAX\n München \u202egnp.exe
    """
    return text.translate(_ESCAPES)


def print_line(text: str = "", *, file: TextIO | None = None) -> None:
    r"""Prints one line for a person.

    Args:
        text: without its line break; what is aligned in it was escaped before.
        file: standard output unless given.

    >>> print_line("2 nodes of \x1b[31mred")
    2 nodes of \x1b[31mred
    """
    print(escaped(text), file=file)


def print_csv(line: str) -> None:
    """Prints one line of CSV, which ends as RFC 4180 has it."""
    print(escaped(line), end="\r\n")


def print_json(
    value: object, *, indent: int | None = None, default: Callable[[Any], object] | None = None
) -> None:
    r"""Prints a value for a program, as JSON of ASCII characters that all can be shown.

    Args:
        value: of dictionaries, lists and scalars.
        indent: of nested lines; all in one line without.
        default: what represents a value of another type.

    Raises:
        TypeError: a value is of another type, and nothing represents it.

    >>> print_json({"label": "\x1b\x7f"})
    {"label": "\u001b\u007f"}
    """
    # JSON allows DELETE as it is; within ASCII text it is in strings alone.
    print(json.dumps(value, indent=indent, default=default).replace("\x7f", "\\u007f"))
