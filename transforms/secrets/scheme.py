"""A kind of place where secrets lie, named by the part of a reference before the first colon."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from dptrees.transforms.errors import ReleaseError


class SecretError(ReleaseError):
    """A secret cannot be read; the message names its reference, never the secret."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A kind of place.

    Args:
        name: the part before the first colon.
        written: how its references are written, for people.
        pattern: of a whole reference.
        load: from a reference, and what its secret is called in the configuration, the text of the
            secret; raises `SecretError`, with `again` where it may pass. Libraries of a service are
            imported here, since not everybody has them.
        remote: it is a service. Workers then query it once per process.
    """

    name: str
    written: str
    pattern: str
    load: Callable[[str, str], str]
    remote: bool

    def takes(self, reference: str) -> bool:
        """Whether a reference is one of this kind, as far as its form shows."""
        return re.fullmatch(self.pattern, reference) is not None
