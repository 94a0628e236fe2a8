"""The gateway of randomness: names, streams and the secrecy of the key."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey, _encoded_part, public_stream
from tests.dpcore.cases import for_each

SECRET = bytes(range(32))
KEY = ReleaseKey(SECRET)

PARTS = st.lists(
    st.one_of(st.binary(max_size=6), st.text(alphabet="ab\x00é1", max_size=6), st.integers()),
    max_size=4,
)


def encoding(parts: list[bytes | str | int]) -> bytes:
    return b"".join(map(_encoded_part, parts))


def typed(parts: list[bytes | str | int]) -> list[tuple[type, object]]:
    return [(type(part), part) for part in parts]


@given(PARTS, PARTS)
def test_encoding_is_injective(
    left: list[bytes | str | int], right: list[bytes | str | int]
) -> None:
    assert (encoding(left) == encoding(right)) == (typed(left) == typed(right))


@given(PARTS)
def test_encoding_is_decodable(parts: list[bytes | str | int]) -> None:
    code, decoded = encoding(parts), []
    while code:
        tag, length = code[:1], int.from_bytes(code[1:9], "big")
        content, code = code[9 : 9 + length], code[9 + length :]
        decoded.append(
            {
                b"b": bytes,
                b"s": bytes.decode,
                b"i": lambda c: int.from_bytes(c, "big", signed=True),
            }[tag](content)
        )
    assert typed(decoded) == typed(parts)


def test_confusable_names_differ() -> None:
    names = [
        ("a", "bc"),
        ("ab", "c"),
        ("abc",),
        ("abc", ""),
        (1,),
        ("1",),
        (b"1",),
        (-1,),
        (255,),
        (256,),
        (2**64,),
        (),
    ]
    assert len({KEY.digest(*name) for name in names}) == len(names)
    assert len({KEY.stream(*name).bytes(16) for name in names}) == len(names)


def test_digest_is_hmac_of_the_encoding() -> None:
    code = b"s" + bytes(7) + b"\x01" + b"x" + b"i" + bytes(7) + b"\x02" + b"\x00\xff"
    assert KEY.digest("x", 255) == hmac.new(SECRET, code, hashlib.sha256).digest()
    assert KEY.check_value() == KEY.digest("check")


def test_stream_is_aes_256_ctr_of_zeros() -> None:
    seed = hmac.new(SECRET, encoding(["stream", "n", 7]), hashlib.sha256).digest()
    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    assert KEY.stream("n", 7).bytes(1000) == cipher.update(bytes(1000))


def test_counter_mode_known_answer() -> None:
    """NIST SP 800-38A, F.5.5, whose first counter block is reached by encrypting it directly."""
    zero_block = "dc95c078a2408989ad48a21492842087"
    assert RandomStream(bytes(32)).bytes(16).hex() == zero_block


@for_each("sizes", [(5, 11, 1), (262_144, 3, 262_145), (700_001,), (0, 17)])
def test_reads_join_up(sizes: tuple[int, ...]) -> None:
    whole = KEY.stream("n").bytes(sum(sizes))
    stream = KEY.stream("n")
    assert b"".join(stream.bytes(size) for size in sizes) == whole


def test_integers_are_little_endian_reads() -> None:
    data = KEY.stream("n").bytes(16 + 2 * 5 + 8)
    stream = KEY.stream("n")
    words, halves, last = stream.uint64(2), stream.uint16(5), stream.uint64(1)
    assert words.dtype == np.uint64 and halves.dtype == np.uint16
    assert words.tolist() == [int.from_bytes(data[i : i + 8], "little") for i in (0, 8)]
    assert halves.tolist() == [int.from_bytes(data[i : i + 2], "little") for i in range(16, 26, 2)]
    assert int(last[0]) == int.from_bytes(data[26:], "little")


def test_arrays_may_be_written() -> None:
    stream = KEY.stream("n")
    words = stream.uint64(4)
    words[:] = 0
    assert stream.uint64(4).any()


def test_bits_are_balanced_and_uncorrelated() -> None:
    bits = np.unpackbits(np.frombuffer(public_stream("bits").bytes(1 << 17), dtype=np.uint8))
    signs = 2.0 * bits - 1
    limit = 4.9 / np.sqrt(signs.size)
    assert abs(signs.mean()) < limit
    for lag in (1, 8, 16, 64, 128):
        assert abs((signs[lag:] * signs[:-lag]).mean()) < limit * 1.01
    repeated = np.concatenate([signs[:128]] * 16)
    assert abs((repeated[128:] * repeated[:-128]).mean()) > limit


def test_streams_of_different_keys_and_names_are_unlike() -> None:
    streams = [KEY.stream("n", 0), KEY.stream("n", 1), ReleaseKey(bytes(32)).stream("n", 0)]
    drawn = [stream.uint64(1000) for stream in [*streams, public_stream("n", 0)]]
    assert all(not (left == right).any() for left, right in pairwise(drawn))


def test_the_secret_never_shows() -> None:
    shown = f"{KEY!r} {KEY} {[KEY]} {KEY.stream('n')!r} {dir(KEY)}"
    for form in (repr(SECRET), SECRET.hex(), KEY.to_text()[14:], str(SECRET[:4])[2:-1]):
        assert form not in shown
    assert not hasattr(KEY, "__dict__")


@for_each("thing", [KEY, KEY.stream("n")])
@for_each("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_copying_and_pickling_are_refused(thing: object, attempt: object) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        attempt(thing)  # type: ignore[operator]


@given(st.binary(min_size=32, max_size=32))
def test_text_form_round_trips(secret: bytes) -> None:
    text = ReleaseKey(secret).to_text()
    assert "\n" not in text and text.startswith("dptrees-key-1:")
    assert ReleaseKey.from_text(f" {text}\r\n").check_value() == ReleaseKey(secret).check_value()


@for_each(
    "text",
    [
        "",
        "SECRETTEXT",
        "dptrees-key-1:",
        "dptrees-key-1:SECRETTEXT",
        "dptrees-key-1:" + "SECRETTEXT" * 5,
        "dptrees-key-2:" + KEY.to_text()[14:],
        KEY.to_text()[:-1],
        KEY.to_text()[14:],
        KEY.to_text().replace("A", "+", 1),
        KEY.to_text() + "é",
    ],
)
def test_wrong_text_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="must be one line") as caught:
        ReleaseKey.from_text(text)
    assert "SECRET" not in str(caught.value) and KEY.to_text()[14:30] not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@for_each("secret", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32)])
def test_wrong_secrets_are_refused(secret: bytes) -> None:
    with pytest.raises(ValueError, match="exactly 32 bytes"):
        ReleaseKey(secret)


@for_each("part", [1.0, None, True, (1,), np.int64(1)])
def test_parts_of_other_types_are_refused(part: int) -> None:
    with pytest.raises(TypeError, match="must be bytes, str or int"):
        KEY.digest("x", part)


def test_a_digest_cannot_be_a_seed() -> None:
    with pytest.raises(ValueError, match="names seeds"):
        KEY.digest("stream", "n")


def test_wrong_seeds_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="seed has 16 bytes"):
        RandomStream(bytes(16))
    with pytest.raises(ValueError, match="must be 0 or more"):
        KEY.stream("n").bytes(-1)


def test_generated_keys_differ() -> None:
    assert len({ReleaseKey.generate().check_value() for _ in range(8)}) == 8


def test_a_place_gives_the_same_bits_whichever_others_are_read() -> None:
    places = np.array([5, 2**64 - 1, 0, 17], np.uint64)
    whole = KEY.placed_streams(places, "noise", 3)
    first, second = whole.uint64(4), whole.select(np.array([3, 1])).uint64(2)
    for place in range(4):
        alone = KEY.placed_streams(places[place : place + 1], "noise", 3)
        assert alone.uint64(1)[0] == first[place]
        if place in (1, 3):
            assert alone.uint64(1)[0] == second[[3, 1].index(place)]
    assert len({*first.tolist(), *second.tolist()}) == 6


def test_placed_streams_are_counter_mode_out_of_turn() -> None:
    seed = KEY._mac("stream", "placed", "noise")
    cipher = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
    streams = KEY.placed_streams(np.array([9], np.uint64), "noise")
    for word in range(3):
        block = cipher.update((9).to_bytes(8, "little") + word.to_bytes(8, "little"))
        assert int(streams.uint64(1)[0]) == int.from_bytes(block[:8], "little")
    with pytest.raises(ValueError, match="2 words were requested, of 1 places"):
        streams.uint64(2)
    with pytest.raises(TypeError, match="would repeat bits"):
        pickle.dumps(streams)


def test_placed_streams_of_a_part_of_a_part() -> None:
    places = np.arange(10, dtype=np.uint64)
    part = KEY.placed_streams(places, "x").select(np.array([2, 4, 8])).select(slice(1, 3))
    alone = KEY.placed_streams(places[[4, 8]], "x")
    assert part.uint64(2).tolist() == alone.uint64(2).tolist()
    assert part.uint16(2).tolist() == (alone.uint64(2) & np.uint64(0xFFFF)).tolist()


# --- sealing ---


def test_what_is_sealed_opens_under_its_key_and_name_alone() -> None:
    key, secret = ReleaseKey(bytes(range(32))), b"counts" * 100
    sealed = key.seal(secret, "state", 3, b"nonce")
    assert len(sealed) == len(secret) + 16 and secret[:8] not in sealed
    assert key.seal(secret, "state", 3, b"nonce") == sealed  # a retry writes the same bytes
    assert key.opened(sealed, "state", 3, b"nonce") == secret
    others = [
        (ReleaseKey(bytes(32)), sealed, ("state", 3, b"nonce")),
        (key, sealed, ("state", "3", b"nonce")),
        (key, sealed, ("state", 3)),
        (key, sealed[:-1], ("state", 3, b"nonce")),
        (key, bytes([sealed[0] ^ 1]) + sealed[1:], ("state", 3, b"nonce")),
        (key, b"", ("state", 3, b"nonce")),
    ]
    for other, data, name in others:
        with pytest.raises(ValueError, match="sealed under another key or name, or damaged"):
            other.opened(data, *name)


def test_keys_of_seals_are_no_digests() -> None:
    with pytest.raises(ValueError, match='must not be "seal"'):
        ReleaseKey(bytes(32)).digest("seal", 0, "state")
