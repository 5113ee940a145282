"""What the oracle is asked, what it answers, and all that its checks look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ingest.oracle.sources import EventId, KafkaRecord, KafkaView, ManifestView
from ingest.oracle.tables import Lake, Position


@dataclass(frozen=True)
class Run:
    """What is to be judged, and what the test itself did to it.

    `excused_ids` were deleted by the test, or lost in a recorded gap or with their topic. `own_versions` are commits that the test
    made on the target, `own_quarantine_versions` on the quarantine. `updated` is what the test's own UPDATE left: by event id,
    payload column → value. `former` is what Kafka showed of topics of this name that the test has deleted since (`read_kafka`).
    `valid_in_quarantine` allows valid records there (conflicting payloads); `refused_kinds` are the kinds of broken records, as manifests
    name them, that the contract lets in by no reading though their id can be read. `payload_columns` are top-level columns with the same
    name in event and table, of type string, integer, decimal, boolean, double or timestamp.
    """

    lake: Path
    pipeline: str
    table: str
    topic: str
    id_columns: tuple[str, ...]
    payload_columns: tuple[str, ...] = ()
    manifests: tuple[Path, ...] = ()
    excused_ids: frozenset[EventId] = frozenset()
    own_versions: frozenset[int] = frozenset()
    own_quarantine_versions: frozenset[int] = frozenset()
    updated: Mapping[EventId, Mapping[str, Any]] = field(default_factory=dict)
    former: tuple[KafkaView, ...] = ()
    valid_in_quarantine: bool = False
    refused_kinds: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        return self.lake / self.pipeline / self.table


@dataclass(frozen=True)
class Verdict:
    """`findings` are wrongs, each a sentence; `notes` say what could not be checked and why."""

    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def assert_clean(self) -> None:
        assert not self.findings, f"{len(self.findings)} findings:\n" + "\n".join(self.findings)


@dataclass
class Case:
    """Everything read, once."""

    run: Run
    kafka: KafkaView
    manifest: ManifestView
    lake: Lake
    notes: list[str] = field(default_factory=list)

    @cached_property
    def views(self) -> Mapping[str, KafkaView]:
        """The topic and those that had its name before, by topic id."""
        return {view.topic_id: view for view in (*self.run.former, self.kafka)}

    def record(self, position: Position) -> KafkaRecord | None:
        """What Kafka shows or showed at this position."""
        view = self.views.get(position.topic_id)
        return None if view is None else view.records.get((position.partition, position.offset))

    def where(self, position: Position) -> str:
        return f"{self.run.table}: partition {position.partition} offset {position.offset}"
