"""The rows and the configurations of all kinds, as of the tests of the Python API."""

from tests.pipelines.python.conftest import golden_rows, rows, work

__all__ = ["golden_rows", "rows", "work"]
