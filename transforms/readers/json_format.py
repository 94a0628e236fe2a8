"""How a file of JSON lines is read: how long a row may be, and what becomes of malformed ones."""

from dataclasses import dataclass

from dptrees.transforms.readers.csv_format import BLOCK_BYTES, POLICIES, ROW_BYTES


@dataclass(frozen=True, kw_only=True)
class JsonFormat:
    """What a row of a file of JSON lines is: a line that holds one object, in UTF-8.

    Args:
        malformed: ``drop`` leaves out every other line, by itself, but for empty ones, which are no
            rows; ``fail`` refuses the file, which reveals something about a row.
        row_bytes: the longest line that is not malformed, without its end.
        block_bytes: how much is read at a time, at most `row_bytes`.

    >>> JsonFormat().malformed
    'drop'
    """

    malformed: str = "drop"
    row_bytes: int = ROW_BYTES
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        if self.malformed not in POLICIES:
            raise ValueError(f"malformed: {self.malformed!r} must be {' or '.join(POLICIES)}")
        if not 1 <= self.block_bytes <= self.row_bytes:
            raise ValueError(
                f"block_bytes: {self.block_bytes} must be from 1 to row_bytes, {self.row_bytes}"
            )


DEFAULT_FORMAT = JsonFormat()
