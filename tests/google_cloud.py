"""What tests need of Google's libraries, which have an environment of their own (`make gcp`)."""

from __future__ import annotations

import importlib.util
import os

import pytest

MISSING = "no libraries of Google Cloud here: make test-gcp"
REQUIRED = "DPTREES_REQUIRE_GCP"


def needed() -> pytest.MarkDecorator:
    """The mark of tests that need them: skipped without them, but where they are required."""
    absent = importlib.util.find_spec("google.cloud") is None or not all(
        importlib.util.find_spec(f"google.cloud.{each}") for each in ("storage", "secretmanager")
    )
    if absent and os.environ.get(REQUIRED):
        raise RuntimeError(f"{REQUIRED} is set, and there are {MISSING}")
    return pytest.mark.skipif(absent, reason=MISSING)
