"""The key travels by reference: neither the job nor what it leaves behind holds the key."""

import base64
import bz2
import gzip
import logging
import lzma
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.internal import pickler

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from dptrees.transforms.errors import sentence_in
from dptrees.transforms.keys import KeyReference, KeyReferenceError
from tests.transforms.conftest import LOCAL_RUNNER

OTHER = ReleaseKey(b"\x05" * 32)
PROJECT = Path(__file__).resolve().parents[2]

COMPRESSED = {
    b"BZh": bz2.BZ2Decompressor,
    b"\x78\x01": zlib.decompressobj,
    b"\x78\x5e": zlib.decompressobj,
    b"\x78\x9c": zlib.decompressobj,
    b"\x78\xda": zlib.decompressobj,
    b"\x1f\x8b\x08": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ": lzma.LZMADecompressor,
}
MAGIC = re.compile(b"|".join(re.escape(magic) for magic in COMPRESSED))
TEXTS = {
    b"+/": re.compile(rb"[A-Za-z0-9+/\n]{16,}"),
    b"-_": re.compile(rb"[A-Za-z0-9_\-\n]{16,}"),
}
DEPTH = 6


def inner(data: bytes) -> Iterator[bytes]:
    """What is packed within bytes: compressed streams and runs of base64."""
    for found in MAGIC.finditer(data):
        try:
            yield COMPRESSED[found.group()]().decompress(data[found.start() :])
        except (OSError, zlib.error, lzma.LZMAError, EOFError):
            continue
    for alphabet, pattern in TEXTS.items():
        for found in pattern.finditer(data):
            run = found.group().replace(b"\n", b"")
            for start in range(4):  # where in the run the coding begins is not known
                part = run[start : len(run) - (len(run) - start) % 4]
                yield base64.b64decode(part, altchars=alphabet)


def holds(data: bytes, needles: list[bytes], depth: int = DEPTH) -> bool:
    """Whether bytes, or anything packed within them, hold one of the needles."""
    if any(needle in data for needle in needles):
        return True
    return depth > 0 and any(holds(part, needles, depth - 1) for part in inner(data) if part)


def plain_forms(key: ReleaseKey) -> list[bytes]:
    """Return the key in every plain form; halves, so that a key broken in two is found as well."""
    text = key.to_text().removeprefix("dptrees-key-1:")
    secret = base64.urlsafe_b64decode(text)
    forms = [secret, base64.b64encode(secret), text.encode()]
    forms += [secret.hex().encode(), secret.hex().upper().encode()]
    return [form[:half] for form in forms for half in [len(form) // 2]] + [
        form[len(form) // 2 :] for form in forms
    ]


def graph(plan, reference: KeyReference, data: str, output: Path, *extra: object) -> bytes:
    """The job as it is sent to an engine."""
    pipeline = beam.Pipeline(LOCAL_RUNNER)
    rows = pipeline | ReadBatches(patterns=(data,), format="parquet", plan=plan)
    done = rows | ReleaseTrees(plan, key=reference, output=str(output))
    for step in extra:
        done |= step
    return pipeline.to_runner_api().SerializeToString()


class Carrier(beam.DoFn):
    """A step that breaks the rule: it holds something in itself."""

    def __init__(self, held: object) -> None:
        self.held = held

    def process(self, element: str) -> Iterator[str]:
        yield element


def test_the_job_does_not_hold_the_key(make_plan, reference, key, data, tmp_path) -> None:
    job = graph(make_plan("value", "carrier"), reference, data, tmp_path / "out")
    assert not holds(job, plain_forms(key))
    # Not because the payloads stay closed: what the steps do hold is found in them.
    assert holds(job, [reference.check_value])
    assert holds(job, [reference.reference.encode()])


@pytest.mark.parametrize(
    "form",
    [
        lambda key: base64.urlsafe_b64decode(key.to_text().split(":")[1]),
        lambda key: key.to_text(),
        lambda key: base64.urlsafe_b64decode(key.to_text().split(":")[1]).hex(),
        lambda key: gzip.compress(key.to_text().encode()),
        lambda key: pickler.dumps(Carrier(key.to_text())),
    ],
    ids=["bytes", "text", "hex", "gzip", "pickle"],
)
def test_the_search_finds_a_key_that_a_step_holds(
    form, make_plan, reference, key, data, tmp_path
) -> None:
    step = beam.ParDo(Carrier(form(key)))
    job = graph(make_plan(), reference, data, tmp_path / "out", step)
    # In the bytes as they are nothing is seen, which is why payloads are opened.
    assert not any(needle in job for needle in plain_forms(key))
    assert holds(job, plain_forms(key))


def test_neither_the_release_nor_the_log_holds_the_key(
    make_plan, key, data, tmp_path, run, release_files, caplog
) -> None:
    caplog.set_level(logging.DEBUG)
    run(make_plan("value", "carrier"), data, tmp_path / "out")
    needles = plain_forms(key)
    for name, content in release_files(tmp_path / "out").items():
        assert not holds(content, needles, depth=2), name
        if name.endswith(".parquet"):
            table = pa.parquet.read_table(pa.BufferReader(content))
            assert not holds(str(table.to_pydict()).encode(), needles, depth=0)
    assert caplog.text
    assert not holds(caplog.text.encode(), needles, depth=1)


def test_a_key_cannot_be_pickled_into_a_step(key) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickler.dumps(Carrier(key))


def test_from_a_file_and_from_the_environment(key_file, key, monkeypatch) -> None:
    monkeypatch.setenv("DPTREES_TEST_KEY", key.to_text())
    for reference in (f"file:{key_file}", "env:DPTREES_TEST_KEY"):
        loaded = KeyReference(reference=reference).checked()
        assert loaded.load().check_value() == key.check_value() == loaded.check_value
        assert key.to_text() not in repr(loaded)


def test_a_file_that_others_can_reach(key_file) -> None:
    for mode in (0o640, 0o604, 0o644, 0o620, 0o601, 0o660):
        key_file.chmod(mode)
        with pytest.raises(KeyReferenceError, match="can be read by others"):
            KeyReference(reference=f"file:{key_file}").load()
    key_file.chmod(0o400)
    KeyReference(reference=f"file:{key_file}").load()


def load_as(user: int, owner: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load a key file as if a user ran, and another one owned the file."""
    status = os.stat(path)
    fields = [*status[:4], owner, *status[5:10]]
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: user)
        patch.setattr(os, "fstat", lambda handle: os.stat_result(fields))
        KeyReference(reference=f"file:{path}").load()


def test_a_file_of_another_user(key_file, monkeypatch) -> None:
    """It must belong to the user who runs, or to root."""
    for user, owner in ((1000, 1001), (1000, 65534), (0, 1000)):
        with pytest.raises(KeyReferenceError) as caught:
            load_as(user, owner, key_file, monkeypatch)
        assert caught.value.sentence == (
            f"key: {key_file} belongs to user {owner}; it must belong to the user who runs dptrees "
            f"({user}) or to root"
        )
    for mode in (0o600, 0o640):
        key_file.chmod(mode)
        for user, owner in ((1000, 1000), (1000, 0), (0, 0)):
            if mode == 0o600:
                load_as(user, owner, key_file, monkeypatch)
                continue
            with pytest.raises(KeyReferenceError, match="can be read by others"):
                load_as(user, owner, key_file, monkeypatch)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_was_given_away_is_refused_through_a_link_too(key_file, tmp_path) -> None:
    link = tmp_path / "link.key"
    link.symlink_to(key_file)
    KeyReference(reference=f"file:{link}").load()
    os.chown(link, 1234, -1, follow_symlinks=False)  # whose the link is does not matter
    KeyReference(reference=f"file:{link}").load()
    os.chown(key_file, 1234, -1)
    for path in (key_file, link):
        with pytest.raises(KeyReferenceError, match="belongs to user 1234"):
            KeyReference(reference=f"file:{path}").load()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path) -> None:
    pipe = tmp_path / "pipe.key"
    os.mkfifo(pipe, 0o600)
    code = (
        "from dptrees.transforms.keys import KeyReference, KeyReferenceError\n"
        "try:\n"
        f"    KeyReference(reference='file:{pipe}').load()\n"
        "except KeyReferenceError as error:\n"
        "    print(error.sentence)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == f"key: {pipe} is not a file\n"


def test_what_is_no_key(key_file, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("DPTREES_TEST_KEY", raising=False)
    wrong = {
        f"file:{tmp_path / 'none'}": "does not exist; make it with: dptrees keygen",
        f"file:{tmp_path}": str(tmp_path),
        "env:DPTREES_TEST_KEY": "the environment variable DPTREES_TEST_KEY is not set",
        "vault:key": "key: vault: is none of env:, file:, gcp-secret:, aws-secretsmanager:",
    }
    for reference, words in wrong.items():
        with pytest.raises(KeyReferenceError) as caught:
            KeyReference(reference=reference).load()
        assert words in caught.value.sentence


def test_a_malformed_or_another_key_is_not_shown(key_file, reference) -> None:
    for text in ("", "Miriam-4711", "dptrees-key-1:Miriam4711", "Mirïam-4711"):
        key_file.write_text(text, encoding="utf-8")
        with pytest.raises(KeyReferenceError) as caught:
            KeyReference(reference=f"file:{key_file}").load()
        assert str(key_file) in caught.value.sentence
        assert "4711" not in str(caught.value)
    key_file.write_text(OTHER.to_text())
    with pytest.raises(KeyReferenceError) as caught:
        reference.load()
    assert "holds another key than the launcher's" in caught.value.sentence
    assert OTHER.to_text() not in str(caught.value)


def test_a_worker_with_another_key_fails(
    make_plan, data, tmp_path, run, reference, key_file
) -> None:
    key_file.write_text(OTHER.to_text())
    with pytest.raises(Exception) as caught:
        run(make_plan(), data, tmp_path / "out")
    sentence = sentence_in(str(caught.value))
    assert sentence is not None and "another key than the launcher's" in sentence
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["nonce.json"]
