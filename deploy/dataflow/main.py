"""What the launcher of the Flex template runs: describes the job of a release for Dataflow.

    python main.py --config=gs://BUCKET/release.yaml [--set=NAME=VALUE;NAME=VALUE] BEAM_OPTIONS

The launcher gives every parameter of the template (metadata.json) as --NAME=VALUE, and Beam's
options for the job, --template_location among them: the job is described there, and runs without
this process.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.cli.command import main
from dptrees.pipelines.monitoring import failure_outcome
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.folder import files


def parser() -> argparse.ArgumentParser:
    """The template's own parameters; whatever else comes is Beam's."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--config", required=True)
    made.add_argument("--set", default="")
    made.add_argument("--runner", default="DataflowRunner")
    return made


def arguments_of(argv: list[str], folder: Path) -> list[str]:
    """The arguments of `dptrees`, with the configuration brought here.

    Raises:
        OutputError: the configuration cannot be read.
    """
    given, rest = parser().parse_known_args(argv)
    files.use_options(PipelineOptions(rest))
    path = folder / FileSystems.split(given.config)[1]
    path.write_bytes(files.read_bytes(given.config))
    chosen = [f"--set={each}" for each in given.set.split(";") if each]
    return ["release", str(path), *chosen, f"--runner={given.runner}", *rest]


def launch(argv: list[str]) -> int:
    """Describes the job; returns the exit code."""
    # What fails is told in one sentence; clients of Google Cloud log what they try again.
    logging.getLogger().setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        try:
            arguments = arguments_of(argv, Path(folder))
        except ReleaseError as error:
            outcome = failure_outcome(error)
            assert outcome is not None
            print_line(f"dptrees: {outcome.sentence.removeprefix('output: ')}", file=sys.stderr)
            return outcome.code
        return main(arguments)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
