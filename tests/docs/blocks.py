"""The fenced blocks of a page, and what each of them is for.

    ```yaml title="release.yaml"    a file of the reader's folder, written as it stands
    ```sh                           commands, run one after the other
    ```python                       run too, all of a page in one namespace
    ```text                         right after one of the two: what it prints
    ```bash, ```console, others     only to be read: an installation, a cluster

A command that is to fail says so at its end: ``# exit 2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

_FENCE = re.compile(r"^```(?P<words>[^\n`]*)\n(?P<text>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]+)"')
# A digest, or a number as any command writes one.
_NUMBER = re.compile(r"\b[0-9a-f]{16}\b|[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
REST = "..."


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        language: its first word.
        title: the name of the file that it is; "" of other blocks.
        text: what is between the fences.
        start, stop: where this text is on the page.
    """

    language: str
    title: str
    text: str
    start: int
    stop: int


def read_blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order.

    >>> [b.language for b in read_blocks("```sh\\nls\\n```\\nand\\n```text\\na.csv\\n```\\n")]
    ['sh', 'text']
    """
    for fence in _FENCE.finditer(page):
        words = fence["words"].split()
        title = _TITLE.search(fence["words"])
        yield Block(
            language=words[0] if words else "",
            title="" if title is None else title[1],
            text=fence["text"],
            start=fence.start("text"),
            stop=fence.end("text"),
        )


def shape(text: str) -> list[str]:
    """The lines of an output without what noise changes: numbers, how wide they are, and how many
    lines of one shape follow each other.

    >>> shape("rows   6,910 ± 868\\n10 % [1, 2]\\n50 % [12, 14]\\n")
    ['rows # ± #', '# % #']
    """
    lines = (" ".join(_NUMBER.sub("#", line).split()) for line in text.splitlines())
    # An interval may be one number.
    lines = (re.sub(r"# to #|\[# #\]", "#", line) for line in lines)
    return [line for line, _ in groupby(filter(None, lines))]


def agrees(shown: str, printed: str) -> bool:
    """Whether an output has the shape that a page shows.

    A line of dots represents any lines, dots in a line for the rest of it.

    >>> agrees("rows 12 ± 3\\n...\\ndone\\n", "rows 1,204 ± 10\\na\\nb\\ndone\\n")
    True
    >>> agrees("rows 12 ± 3\\n", "sums 12 ± 3\\n")
    False
    """
    rest = re.escape(REST)
    patterns = (
        "(?:.*\n)*?" if line == REST else re.escape(line).replace(rest, ".*") + "\n"
        for line in shape(shown)
    )
    whole = "".join(f"{line}\n" for line in shape(printed))
    return re.fullmatch("".join(patterns), whole) is not None
