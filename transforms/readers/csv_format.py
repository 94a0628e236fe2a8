"""How a CSV file is read: what ends a row and a field, and what becomes of malformed text."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dptrees.transforms.readers.csv_encodings import UTF_8, encoding_named
from dptrees.transforms.readers.csv_quotes import Marks
from dptrees.transforms.readers.csv_texts import PLAIN_TEXTS, CsvTexts

ROW_BYTES = 2**24
# Arrow's batches are of a block, and the passes that separate rows fit a core's caches.
BLOCK_BYTES = 2**20

POLICIES = ("drop", "fail")
# What a dialect says about rows; what it says about strings is in `CsvTexts`.
_OF_ROWS = (
    *("separator", "quote", "columns", "encoding", "newlines"),
    *("escape", "skip_lines", "comment", "trailing_separator"),
)


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """What a row of a CSV file is. The guarantee speaks of these rows.

    Args:
        newlines: quoted values may hold line ends. Then a stray quote can join lines to one row;
            otherwise every line is a row or malformed, whatever the lines around it contain.
        malformed: ``drop`` leaves out every malformed row, by itself; ``fail`` refuses the file,
            which reveals something about a row.
        row_bytes: the longest row that is not malformed, in UTF-8, without the end of its line.
        block_bytes: how much is read at a time, at most `row_bytes`.
        separator: between two fields, one character of ASCII.
        quote: around fields that hold a separator; None: no character quotes.
        columns: the names of all columns of a file without a header; empty: it begins with one.
        encoding: of the file, by a name that Python knows.
        escape: makes the next character a part of its field, within quotes and outside; None: no
            character escapes.
        skip_lines: so many lines at the beginning of a file are neither its header nor rows.
        comment: a line that begins with this character is no row; None: there are no comments.
        trailing_separator: a separator that ends a row, or the header, begins no further field.
        texts: how fields are read.

    Raises:
        ValueError: naming the field, the value and the rule.

    >>> CsvFormat().malformed, CsvFormat(separator=";").spec()
    ('drop', {'separator': ';'})
    """

    newlines: bool = False
    malformed: str = "drop"
    row_bytes: int = ROW_BYTES
    block_bytes: int = BLOCK_BYTES
    separator: str = ","
    quote: str | None = '"'
    columns: tuple[str, ...] = ()
    encoding: str = UTF_8
    escape: str | None = None
    skip_lines: int = 0
    comment: str | None = None
    trailing_separator: bool = False
    texts: CsvTexts = PLAIN_TEXTS

    def __post_init__(self) -> None:
        if self.malformed not in POLICIES:
            raise ValueError(f"malformed: {self.malformed!r} must be {' or '.join(POLICIES)}")
        if not 1 <= self.block_bytes <= self.row_bytes:
            raise ValueError(
                f"block_bytes: {self.block_bytes} must be from 1 to row_bytes, {self.row_bytes}"
            )
        object.__setattr__(self, "encoding", encoding_named(self.encoding))
        if self.skip_lines < 0:
            raise ValueError(f"skip_lines: {self.skip_lines} must not be negative")
        others: dict[str, str] = {}
        for name in ("separator", "quote", "escape", "comment"):
            mark = getattr(self, name)
            if mark is None:
                continue
            if not _is_mark(mark):
                raise ValueError(
                    f"{name}: {mark!r} must be one character of ASCII, and no letter, digit or "
                    "line end"
                )
            if mark in others:
                raise ValueError(f"{name}: {mark!r} is the {others[mark]} too")
            others[mark] = name
        if self.newlines and self.quote is None:
            raise ValueError("newlines: true needs a quote, around values that hold line ends")
        if self.newlines and self.escape is not None and self.comment is not None:
            raise ValueError("comment: does not go with both newlines: true and an escape")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise ValueError(f"columns: {twice!r} is listed twice")

    @property
    def marks(self) -> Marks:
        """The bytes that part fields."""
        given = (self.quote, self.escape, self.comment)
        others = [None if mark is None else mark.encode() for mark in given]
        return Marks(self.separator.encode(), *others)

    def spec(self) -> dict[str, Any]:
        """What a row means, as plain JSON values: all that is not as in a file of commas, a header
        and UTF-8, whose specification is empty."""
        plain = DEFAULT_FORMAT
        own = {
            name: getattr(self, name)
            for name in _OF_ROWS
            if getattr(self, name) != getattr(plain, name)
        }
        own |= {"columns": list(self.columns)} if self.columns else {}
        stated = own | self.texts.spec()
        # Releases of files with commas have never stated it.
        return {} if stated == {"newlines": True} else stated

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CsvFormat":
        """The format of a specification.

        Args:
            spec: as `spec` returns it.

        Raises:
            ValueError: it is none.

        >>> CsvFormat.from_spec({"separator": ";", "decimal": ","}).texts.decimal
        ','
        """
        rows = {name: spec[name] for name in _OF_ROWS if name in spec}
        texts = {each.name for each in fields(CsvTexts)} & set(spec)
        unknown = set(spec) - set(rows) - texts
        if unknown:
            raise ValueError(
                f"{min(unknown)}: is not an option of CSV files that this program knows"
            )
        if "columns" in rows:
            rows["columns"] = tuple(rows["columns"])
        return cls(**rows, texts=CsvTexts.from_spec({name: spec[name] for name in texts}))


def _is_mark(text: object) -> bool:
    """Whether a string is one byte of UTF-8 that can separate fields."""
    return (
        isinstance(text, str)
        and len(text) == 1
        and text.isascii()
        and not text.isalnum()
        and text not in "\r\n\0"
    )


DEFAULT_FORMAT = CsvFormat()
