"""All generators that the study compares."""

from __future__ import annotations

from benchmarks.synthetic.generators import REFERENCES
from benchmarks.synthetic.real_generators import REAL_GENERATORS

GENERATORS = (*REFERENCES, *REAL_GENERATORS)
