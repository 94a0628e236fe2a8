"""The look at the workers: their differences are reported, and no code of ours travels to them."""

from __future__ import annotations

import bz2
import pickletools
from base64 import b64decode
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms import preflight
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.preflight import LookAtWorkers, PreflightError, check_found
from tests.transforms.conftest import LOCAL_RUNNER


def looked(key: KeyReference) -> object:
    """The metrics of a look at workers, which are this process."""
    pipeline = beam.Pipeline(LOCAL_RUNNER)
    pipeline | LookAtWorkers(key)
    result = pipeline.run()
    result.wait_until_finish()
    return result.metrics()


def test_alike(reference: KeyReference) -> None:
    check_found(looked(reference))


@pytest.mark.parametrize(
    ("name", "words"),
    [("python_minor", "they run Python 3.x, and"), ("__version__", "they run dptrees 3.x, and")],
)
def test_others(
    reference: KeyReference, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    with monkeypatch.context() as worker:
        worker.setattr(preflight, name, "3.x" if name[0] == "_" else lambda: "3.x")
        found = looked(reference)
    with pytest.raises(PreflightError) as caught:
        check_found(found)
    assert words in caught.value.sentence and not caught.value.again


def test_another_key(reference: KeyReference, key_file: Path) -> None:
    key_file.write_text(ReleaseKey(bytes(32)).to_text())
    with pytest.raises(PreflightError, match=r"another key than the launcher's \(on a worker\)"):
        check_found(looked(reference))


def test_steps_are_named_and_not_sent(reference: KeyReference) -> None:
    """What another Python could not read: code."""
    pipeline = beam.Pipeline()
    pipeline | LookAtWorkers(reference)
    sent = []
    for transform in pipeline.to_runner_api().components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            sent.append(bz2.decompress(b64decode(payload.do_fn.payload)))
    assert len(sent) == 1
    named = [str(argument) for _, argument, _ in pickletools.genops(sent[0])]
    assert "dptrees.transforms.preflight" in named and "_Look" in named
    assert not any("cloudpickle" in name or "CodeType" in name for name in named)
