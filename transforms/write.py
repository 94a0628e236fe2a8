"""Parts of a release, written whole or not at all."""

import base64

from dpcore.questions.place import ReleasedPart
from transforms import files
from transforms.layout import Receipt, parquet_bytes, sha256
from transforms.metrics import BYTES_WRITTEN, PARTS_WRITTEN
from transforms.progress import advance


def write_part(output: str, released: ReleasedPart) -> bytes:
    """Writes a part; a retry writes the same file again.

    Args:
        output: the folder of the release.
        released: the part, its table and its note.

    Returns:
        its receipt, as it travels.
    """
    data = parquet_bytes(released.table)
    receipt = Receipt(
        part=released.part,
        rows=released.table.num_rows,
        sha256=sha256(data),
        note=base64.b64encode(released.note).decode(),
    )
    files.write_whole(files.join(output, *receipt.file_name.split("/")), data)
    PARTS_WRITTEN.inc()
    BYTES_WRITTEN.inc(len(data))
    advance("write", 1)
    return receipt.to_bytes()
