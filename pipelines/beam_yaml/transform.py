"""``type: DPTree``: the release of the rows of the step before, by the section of a configuration.

In Beam YAML a provider names this class (deploy/beam/dptrees-provider.yaml); in other languages an
expansion service knows it by `URN`, with a row of one field as its payload: the section as a text.
"""

from typing import Any, Literal, NamedTuple

import apache_beam as beam
from apache_beam import coders
from apache_beam.portability.api import external_transforms_pb2
from apache_beam.transforms.external import ImplicitSchemaPayloadBuilder

from dptrees.dpcore.release.guarantee import CHECKSUM
from dptrees.pipelines.beam_yaml.section import check_rows, configuration_of_text, section_text
from dptrees.pipelines.running.job import check_options
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.planned_once import planned_once
from dptrees.pipelines.running.stage import Stage
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import is_released, read_manifest
from dptrees.transforms.readers.read import ReadBatches
from dptrees.transforms.release import ReleaseTrees

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
            options=options,
            request=FolderRequest(),
        )
        output = files.absolute(self._configuration.output)
        status, plan = "found" if is_released(output, stage.plan) else "made", stage.plan
        if first:
            rows, plan = rows | "Read" >> _reading(stage), stage.typed_plan
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


def _reading(stage: Stage) -> ReadBatches:
    """What reads the files of a stage, once the first one is seen to have what is read."""
    stage.check_input()
    configuration = stage.configuration
    return ReadBatches(
        patterns=tuple(map(files.absolute, configuration.input_paths)),
        format=configuration.input_format,
        options=configuration.input_options,
        plan=stage.typed_plan,
    )


def _released(manifest: str, release: str, status: str) -> Released:
    folder = manifest.rpartition("/")[0]
    return Released(release, folder, manifest, read_manifest(manifest)[CHECKSUM], status)
