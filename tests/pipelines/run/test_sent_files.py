"""What Beam makes to send to workers goes away with the job."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.transforms import environments

from dptrees.pipelines.run import engine


class Submitted:
    """A job for an engine elsewhere, as Beam submits one."""

    def __init__(self, setup_file: Path) -> None:
        self.options = PipelineOptions(["--runner=PortableRunner", f"--setup_file={setup_file}"])
        self.sent: list[Path] = []

    def run(self) -> Submitted:
        """A job has several environments, each with files of its own."""
        for _ in range(2):
            environments.python_sdk_dependencies(self.options)
        return self

    def wait_until_finish(self) -> None:
        """Workers take the files while the job runs."""
        self.sent = list(Path(tempfile.gettempdir()).glob("dptrees-sent-*/*/*.tar.gz"))


@pytest.fixture
def setup_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packaging file of a project; temporary files then lie in a folder beside it."""
    project = tmp_path / "project"
    project.mkdir()
    setup = project / "setup.py"
    setup.write_text("from setuptools import setup; setup(name='sent', py_modules=[])")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return setup


def left(setup_file: Path) -> list[str]:
    """The temporary files that are there."""
    return [each.name for each in (setup_file.parents[1] / "temporary").iterdir()]


def test_nothing_stays(setup_file: Path) -> None:
    before = environments.python_sdk_dependencies
    submitted: Any = Submitted(setup_file)
    assert submitted.options.view_as(SetupOptions).setup_file == str(setup_file)
    assert engine.finish_job(submitted) is submitted
    assert len({each.parent for each in submitted.sent}) == 2
    assert left(setup_file) == ["beam-requirements-cache"]
    assert environments.python_sdk_dependencies is before


def test_jobs_of_two_threads_leave_beam_as_it_was(setup_file: Path) -> None:
    """Each waits for its engine while the other is submitted."""
    before, both = environments.python_sdk_dependencies, threading.Barrier(2, timeout=60)

    class Waiting(Submitted):
        def wait_until_finish(self) -> None:
            both.wait()
            super().wait_until_finish()

    jobs: list[Any] = [Waiting(setup_file), Waiting(setup_file)]
    threads = [threading.Thread(target=engine.finish_job, args=(each,)) for each in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(len(each.sent) for each in jobs) == 4
    assert left(setup_file) == ["beam-requirements-cache"]
    assert environments.python_sdk_dependencies is before


def test_files_of_another_pipeline_stay_its_own(setup_file: Path) -> None:
    """Another thread builds a pipeline of its own meanwhile."""

    class Meanwhile(Submitted):
        def run(self) -> Submitted:
            other = threading.Thread(
                target=environments.python_sdk_dependencies, args=(self.options,)
            )
            other.start()
            other.join()
            return self

    submitted: Any = Meanwhile(setup_file)
    engine.finish_job(submitted)
    assert submitted.sent == []
    (made,) = set(left(setup_file)) - {"beam-requirements-cache"}
    assert list((setup_file.parents[1] / "temporary" / made).glob("*.tar.gz"))
