"""How hard the pages are to read: words, sentence lengths and stiff phrases of each page.

    python -m tests.docs.reading [PAGE ...]

prints one line for each page. A sentence is a run of prose that ends with a full stop, a colon, a
question mark or the end of its paragraph, list item or table cell; code blocks do not count, and a
name in code counts as one word. Table cells of fewer than four words are data, not sentences.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.test_words import dialect_in

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
# Pages outside of docs/.
OTHER_PAGES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
    ".ci/README.md",
)
# Phrases of the project's former style. Each has a plainer form; see CONTRIBUTING.md.
STIFF = re.compile(
    r"\b(?:besides?|anew|so many|nobody|as of (?:the|a)|lies?"
    r"|what (?:is|are|was|were|they|he|becomes?|comes|stays|remains|has|have|follows|"
    r"leaves|goes|lies|no|others?|engines?|rows?|people|such)"
    r"|of (?:one's|your|its|their) own|by (?:itself|themselves)|goes on|go on|comes? out|taken over"
    r"|seen to|booked|passed over|remarked|those that|that of|the one that|where no|is said"
    r"|are said|for whom|hers|its own|is there|are there|at hand|makes of)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^( *)(```+).*?^\1\2`*\s*$|\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}(?![-*\d]).*\n|\n)+")
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_RULE = re.compile(r"^\s*\|?[-:| ]+\|?\s*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_END = re.compile(r"(?<=[.!?:])[)\"*_]*\s+(?=[^a-z])")
_WORD = re.compile(r"[A-Za-z][\w'-]*")
_FEWEST_WORDS = 4


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Figures of one page.

    Args:
        words: in its prose.
        median: words of a sentence.
        longest: words of its longest sentence.
        stiff: stiff phrases, as `STIFF` lists them.
        dialect: words of the former dialect, as tests/test_words.py lists them.
    """

    words: int
    median: float
    longest: int
    stiff: int
    dialect: int

    @property
    def stiff_per_thousand(self) -> float:
        """Stiff phrases in 1,000 words."""
        return 1000 * self.stiff / max(1, self.words)


def blocks(page: str) -> Iterator[str]:
    """Yield the paragraphs, list items and table cells of a page, without code.

    >>> list(blocks("# A page\\n\\nOne\\ntwo.\\n\\n| a | `b` c |\\n|---|---|\\n\\n- three\\n"))
    ['One two.', 'a', 'Code c', 'three']
    """
    text = _COMMENT.sub("", _INDENTED.sub("\n", _FENCE.sub("\n", page)))
    text = _LINK.sub(r"\1", _CODE.sub("Code", text))
    run: list[str] = []
    for line in [*text.splitlines(), ""]:
        line = line.lstrip("> ")
        is_table = line.lstrip().startswith("|")
        if not line.strip() or line.startswith("#") or is_table or _ITEM.match(line):
            if run:
                yield " ".join(run)
            run = []
        if is_table and not _RULE.match(line):
            yield from (cell.strip() for cell in line.strip().strip("|").split("|"))
        elif line.strip() and not line.startswith("#") and not _RULE.match(line):
            run.append(_ITEM.sub("", line).strip())


def sentences(page: str) -> list[str]:
    """Return the sentences of a page.

    >>> sentences("One of them is here. Two are here: a and b.\\n")
    ['One of them is here.', 'Two are here: a and b.']
    """
    split = (each for block in blocks(page) for each in _END.split(block))
    return [each for each in split if len(_WORD.findall(each)) >= _FEWEST_WORDS]


def reading(page: str) -> Reading:
    """Measure a page of Markdown."""
    found = sentences(page)
    lengths = [len(_WORD.findall(each)) for each in found] or [0]
    return Reading(
        words=sum(lengths),
        median=statistics.median(lengths),
        longest=max(lengths),
        stiff=sum(len(STIFF.findall(each)) for each in found),
        dialect=len(dialect_in(page, ".md")),
    )


def pages() -> list[Path]:
    """Return the pages that people read."""
    return [*(PROJECT / name for name in OTHER_PAGES), *sorted(DOCS.rglob("*.md"))]


def main(names: Sequence[str]) -> None:
    """Print the figures of pages; without names, of all pages."""
    chosen = [PROJECT / name for name in names] or pages()
    print("  words  median  longest  stiff  in 1,000  dialect  page")
    for path in chosen:
        found = reading(path.read_text(encoding="utf-8"))
        print(
            f"{found.words:7,} {found.median:7.1f} {found.longest:8} {found.stiff:6} "
            f"{found.stiff_per_thousand:9.1f} {found.dialect:8}  {path.relative_to(PROJECT)}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
