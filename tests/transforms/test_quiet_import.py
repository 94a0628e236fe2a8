"""What users see when Beam is imported: nothing that is not for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "statement",
    [
        "import dptrees.transforms.release",
        "import dptrees.pipelines.query.querying, dptrees.pipelines.run.job",
        "import dptrees.pipelines.ledger.commands",
        "import dptrees; dptrees.plan({'privacy': {'epsilon': 1, 'neighbors': 'add_remove'}, "
        "'trees': [{'name': 'a', 'domain': {'column': 'x', 'lower': 0, 'upper': 8, 'cells': 8}}]})",
    ],
)
def test_no_warning_of_a_client_that_is_not_used(statement: str) -> None:
    """Beam warns that apitools is missing, in every program that imports it."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport apache_beam.io.gcp.internal.clients.bigquery"],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert "apitools" not in done.stderr
