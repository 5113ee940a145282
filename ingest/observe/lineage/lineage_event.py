"""The OpenLineage events of a table: one run per batch or epoch, which reads the topics, and one per validation of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import InputDatasetFacet as InputFacet
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.uuid import generate_static_uuid

from ingest import __version__
from ingest.contract.columns import target_columns
from ingest.contract.definition import Contract
from ingest.contract.sql_type import ddl
from ingest.ledger.ledger_line import Line
from ingest.runtime.files import local_path
from ingest.runtime.places import Places

PRODUCER = f"urn:oncelake:{__version__}"
NAMESPACE = "oncelake"
set_producer(PRODUCER)


@attr.define
class OffsetsFacet(InputFacet):
    """The offset ranges that a batch read: `partition`, `start` (included) and `end` (excluded)."""

    topicId: str  # noqa: N815
    ranges: list[dict[str, int]]

    @staticmethod
    def _get_schema() -> str:
        return "urn:oncelake:facet:offsets:1"


@attr.define
class BatchesFacet(RunFacet):
    """The batches of the run, the first and the last one, and what became of their records."""

    epoch: int
    firstBatch: int  # noqa: N815
    lastBatch: int  # noqa: N815
    duplicate: int
    quarantined: int
    contractHash: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return "urn:oncelake:facet:batches:1"


@dataclass(frozen=True)
class ValidationRun:
    """The expectations of one run of `ingest check` at a target version. Each is `expectation`, `column`, `severity` and `success`."""

    run_id: str
    run_at: datetime
    version_to: int
    expectations: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class EventMaker:
    """Makes the events of a table. `broker` is the first bootstrap server as host:port, `namespace` that of the jobs."""

    contract: Contract
    places: Places
    broker: str
    namespace: str = NAMESPACE

    def of_batches(self, lines: Sequence[Line], *, whole_epoch: bool = False) -> RunEvent:
        """The event of one batch, or of an epoch so far: its lines in order. The same batch or epoch always has the same run id."""
        first, last = lines[0], lines[-1]
        identity = str(first.batch_id.epoch) if whole_epoch else str(first.batch_id)
        batches = BatchesFacet(
            epoch=first.batch_id.epoch,
            firstBatch=first.batch_id.number,
            lastBatch=last.batch_id.number,
            duplicate=sum(line.posting.repeated for line in lines),
            quarantined=sum(line.posting.quarantine.rows for line in lines),
            contractHash=last.contract_hash,
        )
        quarantined = [self._written("quarantine", batches.quarantined)] if batches.quarantined else []
        return self._event(
            self.contract.name,
            self._run(first.committed_at, f"{first.topic.id}/{identity}", {"oncelake_batches": batches}),
            last.committed_at,
            inputs := self._topics(lines),
            [self._target(last, sum(line.posting.inserted for line in lines), [each.name for each in inputs]), *quarantined],
        )

    def of_validation(self, run: ValidationRun) -> RunEvent:
        """The event of a validation run: its expectations are assertions on the target, with results and without values of rows."""
        assertions = [
            data_quality_assertions_dataset.Assertion(
                assertion=each["expectation"],
                success=each["success"],
                column=each["column"],
                severity="error" if each["severity"] == "critical" else "warn",
            )
            for each in run.expectations
        ]
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions)
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(run.version_to))
        read = InputDataset(*self._at("target"), facets={"version": version}, inputFacets={"dataQualityAssertions": facet})
        return self._event(f"{self.contract.name}.check", self._run(run.run_at, run.run_id, {}), run.run_at, [read], [])

    def _event(self, job: str, run: Run, at: datetime, inputs: list[InputDataset], outputs: list[OutputDataset]) -> RunEvent:
        kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="ONCELAKE", jobType="JOB")
        facets: dict[str, JobFacet] = {"jobType": kind}
        return RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=at.astimezone(UTC).isoformat(),
            run=run,
            job=Job(self.namespace, job, facets),
            inputs=inputs,
            outputs=outputs,
            producer=PRODUCER,
        )

    def _run(self, at: datetime, identity: str, facets: dict[str, RunFacet]) -> Run:
        name = f"{self.namespace}/{self.contract.name}/{identity}"
        engine = processing_engine_run.ProcessingEngineRunFacet(version=__version__, name="oncelake")
        return Run(str(generate_static_uuid(at, name.encode())), {"processing_engine": engine, **facets})

    def _topics(self, lines: Sequence[Line]) -> list[InputDataset]:
        of: dict[int, list[Line]] = {}
        for line in lines:
            of.setdefault(line.posting.key.source, []).append(line)
        return [self._topic(of[source]) for source in sorted(of)]

    def _topic(self, lines: Sequence[Line]) -> InputDataset:
        ranges: dict[int, dict[str, int]] = {}
        for line in lines:
            if (at := line.posting.range) is not None:
                known = ranges.setdefault(at.partition, {"partition": at.partition, "start": at.start, "end": at.end})
                known["end"] = at.end
        read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=sum(line.posting.read for line in lines))
        offsets = OffsetsFacet(topicId=lines[-1].topic.id, ranges=[ranges[partition] for partition in sorted(ranges)])
        return InputDataset(self._kafka, lines[-1].topic.name, inputFacets={"inputStatistics": read, "oncelake_offsets": offsets})

    def _target(self, line: Line, inserted: int, topics: Sequence[str]) -> OutputDataset:
        """The target after a batch of these topics. The contract describes it only if the batch was decoded under this contract."""
        written = self._written("target", inserted)
        assert written.facets is not None
        written.facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(line.version))
        if line.contract_hash == self.contract.hash:
            fields = [
                schema_dataset.SchemaDatasetFacetFields(
                    name=each.name, type=ddl(each.type, comments=False), description=each.comment or None
                )
                for each in target_columns(self.contract)
            ]
            written.facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
            if self.contract.source.format == "json":
                written.facets["columnLineage"] = self._from_keys(topics)
        return written

    def _from_keys(self, topics: Sequence[str]) -> column_lineage_dataset.ColumnLineageDatasetFacet:
        """A column is filled from the JSON key of the same name."""
        direct = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
        fields = {
            each.name: column_lineage_dataset.Fields(
                inputFields=[column_lineage_dataset.InputField(self._kafka, topic, each.name, transformations=[direct]) for topic in topics]
            )
            for each in self.contract.columns
        }
        return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)

    def _written(self, kind: str, rows: int) -> OutputDataset:
        table = symlinks_dataset.Identifier(
            self.namespace, self.contract.name if kind == "target" else f"{self.contract.name}.{kind}", "TABLE"
        )
        return OutputDataset(
            *self._at(kind),
            facets={
                "storage": storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet"),
                "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[table]),
            },
            outputFacets={"outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)},
        )

    def _at(self, kind: str) -> tuple[str, str]:
        """Namespace and name of a table, by OpenLineage's rules for a local file."""
        return "file", str(local_path(f"{self.places.root}/{kind}"))

    @property
    def _kafka(self) -> str:
        return f"kafka://{self.broker}"
