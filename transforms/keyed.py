"""Steps that need the release key."""

from collections.abc import Sequence

import apache_beam as beam

from dptrees.dpcore.noise.randomness import NONCE_BYTES
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.conservation import check_once
from dptrees.transforms.key_reference import KeyReference


class KeyedDoFn(beam.DoFn):
    """A step that needs the release key, which it loads on its worker when it is set up."""

    def __init__(self, plan: ReleasePlan, key: KeyReference) -> None:
        self._plan, self._reference = plan, key

    def setup(self) -> None:
        self._key = self._reference.load()

    def source(self, draw: Sequence[bytes]) -> NoiseSource:
        """The source of noise from the folder's nonce and the global digest behind it, which are to
        come exactly once."""
        check_once("the global digest", [len(each) for each in draw], [NONCE_BYTES + 32])
        return NoiseSource(
            key=self._key,
            release=self._plan.name,
            spec_digest=self._plan.digest,
            global_digest=draw[0][NONCE_BYTES:],
            nonce=draw[0][:NONCE_BYTES],
        )
