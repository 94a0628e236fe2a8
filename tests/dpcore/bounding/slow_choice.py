"""What stays of the rows of units, written again without the code it checks: dictionaries, one row
at a time, AES by the block."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dptrees.dpcore.noise.randomness import ReleaseKey

Row = tuple[Any, Any, int]  # unit, cell, value
MASK = 2**64 - 1


def permutation(key: ReleaseKey, *name: str) -> Callable[[int], int]:
    """AES under the key of a name, of blocks as numbers, little endian."""
    seed = key._mac("stream", "blocks", *name)
    encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
    return lambda block: int.from_bytes(encryptor.update(block.to_bytes(16, "little")), "little")


def chained(blocks: Callable[[int], int], data: bytes) -> int:
    """CBC-MAC of whole blocks."""
    state = 0
    for start in range(0, len(data), 16):
        state = blocks(state ^ int.from_bytes(data[start : start + 16], "little"))
    return state


def text_block(text: bytes, tag: int = 7) -> bytes:
    """The encoding of a text, in whole blocks."""
    head = text[:10].ljust(10, b"\0") + bytes([tag]) + len(text).to_bytes(5, "little")
    rest = text[10:]
    return head + rest.ljust(-(-len(rest) // 16) * 16, b"\0")


def number_block(value: int) -> bytes:
    """The encoding of a 64-bit integer."""
    return (value & MASK).to_bytes(8, "little") + bytes([0, 0, 1, 0, 0, 0, 0, 0])


def unit_id(key: ReleaseKey, release: str, value: int | str) -> int:
    """The id of a unit of one column."""
    data = text_block(value.encode()) if isinstance(value, str) else number_block(value)
    return chained(permutation(key, "unit", release), data)


def slow_choice(
    rows: Iterable[Row],
    *,
    key: ReleaseKey,
    release: str,
    tree: str,
    most: int,
    keys: int | None = None,
    per_key: int | None = None,
    cell_key: Callable[[Any], int] | None = None,
) -> Counter[tuple[Hashable, Hashable, int]]:
    """The multiset of rows that stay."""
    hashed = permutation(key, "rows that stay", release, tree)
    key_hash = permutation(key, "keys that stay", release, tree)
    labels = permutation(key, "labels", release, tree)
    by_unit: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    for unit, cell, value in rows:
        by_unit[unit].append((cell, value))
    kept: Counter[tuple[Hashable, Hashable, int]] = Counter()
    for unit, own in by_unit.items():
        uid = unit_id(key, release, unit)
        find_key = cell_key or (lambda cell: 0)
        allowed = sorted(
            {find_key(cell) for cell, _ in own}, key=lambda k: key_hash(uid ^ k) & MASK
        )
        if cell_key is not None and keys is not None:
            allowed = allowed[:keys]
        ranked = []
        seen: Counter[Any] = Counter()
        for cell, value in sorted(own):
            cell_block = chained(labels, text_block(cell)) if isinstance(cell, bytes) else cell
            block = hashed(uid ^ (cell_block & (2**128 - 1 if isinstance(cell, bytes) else MASK)))
            rank = hashed(block ^ seen[cell]) & MASK
            seen[cell] += 1
            if find_key(cell) in allowed:
                ranked.append((rank >> 16, cell, seen[cell], value))
        ranked.sort()
        under: Counter[int] = Counter()
        stay = 0
        for _, cell, _, value in ranked:
            if stay == most:
                break
            if cell_key is not None and per_key is not None and under[find_key(cell)] == per_key:
                continue
            under[find_key(cell)] += 1
            stay += 1
            kept[unit, cell, value] += 1
    return kept
