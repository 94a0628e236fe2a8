"""What Beam makes to send to workers goes away with the job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.transforms import environments

from pipelines.running import job


class Submitted:
    """A job for an engine elsewhere, as Beam submits one."""

    def __init__(self, setup_file: Path) -> None:
        self.options = PipelineOptions(["--runner=PortableRunner", f"--setup_file={setup_file}"])

    def run(self) -> Submitted:
        for _ in range(2):
            environments.python_sdk_dependencies(self.options)
        return self

    def wait_until_finish(self) -> None:
        """Workers take the files while the job runs."""
        assert any(Path(tempfile.gettempdir()).glob("dptrees-sent-*/*.tar.gz"))


def test_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    setup = project / "setup.py"
    setup.write_text("from setuptools import setup; setup(name='sent', py_modules=[])")
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    before = environments.python_sdk_dependencies
    submitted: Any = Submitted(setup)
    assert submitted.options.view_as(SetupOptions).setup_file == str(setup)
    assert job.finish_job(submitted) is submitted
    assert [each.name for each in own.iterdir()] == ["beam-requirements-cache"]
    assert environments.python_sdk_dependencies is before
