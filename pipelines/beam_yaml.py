"""``type: DPTree`` of Beam YAML, and the service that expands it for pipelines in Java or Go.

    python -m dptrees.expansion_service --port 8097 --environment_type=...

Beam reads YAML 1.1 and floats, dptrees YAML 1.2 and decimals, so a section is written as JSON,
which both read alike. Other languages send the section as the one field of the payload of `URN`.

Anyone who reaches the port runs any code as the user who started it, and so reads the key and
the rows: never on a machine with other users, or only in a pod or network namespace of its own.
Other transforms are refused and no files are served, but a request may hold pickled code of
earlier steps, which Beam loads. It listens on this machine alone unless configured otherwise.
"""

import argparse
import json
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from threading import Event
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import grpc
from apache_beam import coders
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import (
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    external_transforms_pb2,
)
from apache_beam.runners.portability.expansion_service import ExpansionServiceServicer
from apache_beam.transforms.external import ImplicitSchemaPayloadBuilder
from apache_beam.utils import thread_pool_executor

from dptrees.dpcore.release.manifest import CHECKSUM
from dptrees.pipelines.config.configuration import Configuration, checked_configuration
from dptrees.pipelines.run.engine import check_options
from dptrees.pipelines.run.job import Options
from dptrees.pipelines.run.output import FolderRequest
from dptrees.pipelines.run.planned_once import planned_once
from dptrees.pipelines.run.stage import Stage
from dptrees.pipelines.sections.document import ConfigurationError, parse_document
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.beam.adapter import OnBeam
from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import is_released, read_manifest
from dptrees.transforms.readers.read import ReadFiles

SOURCE = "DPTree"
# A placeholder for the rows of the step before: no file is read.
_NO_FILES = {"format": "parquet", "path": "rows of the step before"}
# What a step cannot do, since it takes place before the job and after it.
_OUTSIDE = "does not go with DPTree, which does nothing {} the job; dptrees release does"
_REFUSED = {
    "ledger": _OUTSIDE.format("before"),
    "dataset": _OUTSIDE.format("before"),
    "signing_key": _OUTSIDE.format("after"),
}
# A number to YAML 1.2, and a text to YAML 1.1, which wants a point and a sign.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


def section_text(section: Mapping[str, Any]) -> str:
    """A section as JSON.

    Args:
        section: as Beam reads it.

    Raises:
        ConfigurationError: it holds what no YAML can say.

    >>> section_text({"privacy": {"epsilon": 0.1, "delta": "1e-6"}})
    '{"privacy": {"epsilon": 0.1, "delta": 1e-06}}'
    """
    try:
        return json.dumps(_numbers(section), default=_day)
    except TypeError as error:
        raise ConfigurationError(f"{SOURCE}: {error}") from None


def configuration_of_text(text: str) -> Configuration:
    """The checked configuration of a section.

    Args:
        text: YAML, or the JSON of `section_text`.

    Raises:
        ConfigurationError: in one sentence, as of a file.
    """
    values = parse_document(text, SOURCE)
    if isinstance(values, dict):
        for key, rule in _REFUSED.items():
            if key in values:
                raise ConfigurationError(f"{SOURCE}: {key}: {rule}")
        values = {"input": _NO_FILES} | values
    configuration = checked_configuration(values, SOURCE, {})
    if configuration.table is not None:
        raise ConfigurationError(
            f"{SOURCE}: input: tables do not go with DPTree; dptrees release does"
        )
    if configuration.selection is not None:
        raise ConfigurationError(
            f"{SOURCE}: trees: keys: private {_OUTSIDE.format('before')}; list the keys"
        )
    if configuration.chooses_bounds:
        first = next(iter(configuration.bound_shares))
        raise ConfigurationError(
            f"{SOURCE}: {first}: auto {_OUTSIDE.format('before')}; give a number"
        )
    return configuration


def check_rows(configuration: Configuration, *, given: bool) -> None:
    """Checks that rows come from one place.

    Args:
        configuration: of the section.
        given: whether a step comes before.

    Raises:
        ConfigurationError: they come from two places, or from none.
    """
    has_files = configuration.input_paths != (_NO_FILES["path"],)
    if has_files and given:
        raise ConfigurationError(
            f"{SOURCE}: input: does not go with a step before, whose rows are released"
        )
    if not has_files and not given:
        raise ConfigurationError(f"{SOURCE}: input: is required, since there is no step before")


def _numbers(value: Any) -> Any:
    """Restore the numbers that Beam read as strings, but not in lists, which may hold keys."""
    if isinstance(value, Mapping):
        return {name: _number(_numbers(each)) for name, each in value.items()}
    return [_numbers(each) for each in value] if isinstance(value, (list, tuple)) else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _day(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{value!r} is no value of YAML")


URN = "dptrees:transform:release:v1"


class Released(NamedTuple):
    """What is there: public, as the folder is.

    Args:
        release: the id of the release.
        folder: of it.
        manifest: the path of its manifest.
        checksum: of the manifest.
        status: "made" by this pipeline; "found", if the release existed and no row was counted.
    """

    release: str
    folder: str
    manifest: str
    checksum: str
    status: str


@beam.PTransform.register_urn(URN, external_transforms_pb2.ExternalConfigurationPayload)
class DPTree(beam.PTransform):
    """A differentially private release of the rows of the step before, or of files.

    Args:
        configuration: the whole section as a string of YAML; or its keys, one by one.
        if_exists: as of `ReleaseTrees`.
        section: release, output, key or key_file, privacy, trees: the keys of
            docs/configuration but for ledger, dataset and signing_key; input where no step
            comes before.

    Returns:
        PCollection[Released]: one row, once the release is finished.

    Raises:
        ConfigurationError: with the same message as from the command.
        UserError: the pipeline's runner, or an option of it, cannot be used.
    """

    # Beam YAML requires this, as it may be first.
    _yaml_requires_inputs = False

    def __init__(
        self,
        configuration: str | None = None,
        *,
        if_exists: Literal["error", "use"] = "error",
        **section: Any,
    ) -> None:
        super().__init__()
        self._if_exists = if_exists
        self._text = section_text(section) if configuration is None else configuration
        self._configuration = configuration_of_text(self._text)
        _ = self._configuration.plan()  # what cannot be planned is refused here

    def expand(self, rows: Any) -> Any:
        options = rows.pipeline.options
        check_options(options)
        files.use_options(options)
        first = isinstance(rows, beam.pvalue.PBegin)
        check_rows(self._configuration, given=not first)
        stage = Stage(
            configuration=self._configuration,
            planned=planned_once(self._configuration),
            options=Options(beam=options),
            request=FolderRequest(),
        )
        output = files.absolute(self._configuration.output)
        status, plan = "found" if is_released(output, stage.plan) else "made", stage.plan
        if first:
            rows, plan = rows | "Read" >> OnBeam(_reading(stage)), stage.typed_plan
        release = ReleaseTrees(
            plan,
            key=self._configuration.key,
            output=output,
            parameters=self._configuration.parameters,
            report=self._configuration.report,
            request=self._configuration.request,
            if_exists=self._if_exists,
        )
        name = self._configuration.release
        return (
            rows
            # A row, or batches with their balance -> str, the path of the manifest
            | "Release" >> release
            # str -> Released
            | "Told" >> beam.Map(_released, name, status).with_output_types(Released)
        )

    def to_runner_api_parameter(self, context: Any) -> tuple[str, Any]:
        payload = {"configuration": self._text, "if_exists": self._if_exists}
        return URN, ImplicitSchemaPayloadBuilder(payload).build()

    @staticmethod
    def from_runner_api_parameter(transform: Any, payload: Any, context: Any) -> "DPTree":
        row = coders.RowCoder(payload.schema).decode(payload.payload)
        return DPTree(**row._asdict())


def _reading(stage: Stage) -> ReadFiles:
    """What reads the files of a stage, once the first one is seen to have what is read."""
    stage.check_input()
    configuration = stage.configuration
    return ReadFiles(
        patterns=tuple(map(files.absolute, configuration.input_paths)),
        format=configuration.input_format,
        options=configuration.input_options,
        plan=stage.typed_plan,
    )


def _released(manifest: str, release: str, status: str) -> Released:
    folder = manifest.rpartition("/")[0]
    return Released(release, folder, manifest, read_manifest(manifest)[CHECKSUM], status)


class _Expanding(ExpansionServiceServicer):
    """Expands `DPTree`, and nothing else: Beam's own runs the code of a pickled transform."""

    def Expand(self, request: Any, context: Any = None) -> Any:
        urn = request.transform.spec.urn
        if urn != URN:
            sentence = f"{urn or 'a transform without a URN'}: this service expands {URN} alone"
            return beam_expansion_api_pb2.ExpansionResponse(error=sentence)
        return super().Expand(request, context)


def service(address: str, options: PipelineOptions) -> tuple[grpc.Server, int]:
    """A service that is not started yet, and its port.

    Args:
        address: a host and a port; port 0 is any that is free.
        options: Beam's, of the environment of the expanded steps.

    Raises:
        RuntimeError: the port is taken.
    """
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(_Expanding(options), server)
    return server, server.add_insecure_port(address)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal comes; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Expand DPTree for pipelines in any language.",
        epilog="All other options are Beam's: where the workers of the release run.",
    )
    parser.add_argument(
        "--host", default="localhost", help="host to listen on (default: localhost)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free one)"
    )
    chosen, rest = parser.parse_known_args(arguments)
    options = PipelineOptions([*rest, "--experiments=beam_fn_api", "--sdk_location=container"])
    server, port = service(f"{chosen.host}:{chosen.port}", options)
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    print_line(f"{URN} at {chosen.host}:{port}")
    sys.stdout.flush()
    ended.wait()
    server.stop(None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
