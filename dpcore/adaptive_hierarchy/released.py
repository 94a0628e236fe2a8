"""The answers about an adaptive hierarchy: given the tree that came out, and what is known inside
a node of it that was not split."""

from __future__ import annotations
