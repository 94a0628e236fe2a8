"""How a CSV file is read: what ends a row, and what becomes of malformed text."""

from dataclasses import dataclass

ROW_BYTES = 2**24
# Arrow's batches are of a block, and the passes that tell rows apart fit a core's caches.
BLOCK_BYTES = 2**20

POLICIES = ("drop", "fail")


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """What a row of a CSV file is. The guarantee speaks of these rows.

    Args:
        newlines: quoted values may hold line ends. Then a stray quote can join lines to one row;
            otherwise every line is a row or malformed, whatever stands in the lines around it.
        malformed: ``drop`` leaves out every malformed row, by itself; ``fail`` refuses the file,
            which tells of a row.
        row_bytes: the longest row that is not malformed, without the end of its line.
        block_bytes: how much is read at a time, at most `row_bytes`.

    >>> CsvFormat().malformed
    'drop'
    """

    newlines: bool = False
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


DEFAULT_FORMAT = CsvFormat()
