"""The oracle's input (JudgedRun), its output (OracleVerdict) and the data that its checks read (Case)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ingest.lab.oracle.oracle_tables import Lake, Position
from ingest.lab.oracle.sources import EventId, KafkaRecord, KafkaView, ManifestView, Of


@dataclass(frozen=True)
class JudgedRun:
    """A run to judge, and the changes that the test itself made to it.

    - `payload_columns` are top-level columns with the same name in event and table, of type string, integer, decimal, boolean, double or
      timestamp.
    - `excused_ids` were deleted by the test, or lost in an accepted gap or with their topic.
    - `own_versions` are the test's own commits on the target, `own_quarantine_versions` those on the quarantine.
    - `updated` has the values that the test's own UPDATE wrote: by event id, payload column → value.
    - `former` are earlier topics of these names that the test has deleted, or that left the contract (from `read_kafka`).
    - `valid_in_quarantine` allows valid records in the quarantine (conflicting payloads).
    - `refused_kinds` are the kinds of broken records, as manifests name them, that the contract never accepts although their id can be
      read.
    """

    lake: Path
    pipeline: str
    table: str
    topics: tuple[str, ...]
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
class OracleVerdict:
    """`findings` are errors, one sentence each; `notes` name what could not be checked, and why."""

    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def assert_clean(self) -> None:
        assert not self.findings, f"{len(self.findings)} findings:\n" + "\n".join(self.findings)


@dataclass
class Case:
    """All data of the run, read once."""

    run: JudgedRun
    kafka: tuple[KafkaView, ...]
    manifest: ManifestView
    lake: Lake
    notes: list[str] = field(default_factory=list)

    @cached_property
    def views(self) -> Mapping[str, KafkaView]:
        """The topics and their predecessors, by topic id."""
        return {view.topic_id: view for view in (*self.run.former, *self.kafka)}

    @cached_property
    def records(self) -> Mapping[Position, KafkaRecord]:
        """Every record that is visible in Kafka, or was visible in a former topic."""
        return {Position(view.topic_id, *place): record for view in self.views.values() for place, record in view.records.items()}

    def own_versions(self, table: str) -> Set[int]:
        """The test's own commits on target or quarantine."""
        return self.run.own_versions if table == "target" else self.run.own_quarantine_versions

    def where(self, position: Position) -> str:
        return f"{self.run.table}: {self.named(position[:2])} offset {position.offset}"

    def named(self, of: Of) -> str:
        """A partition, with its topic if there are several."""
        return f"{self._names.get(of[0], '')}partition {of[1]}"

    @cached_property
    def _names(self) -> Mapping[str, str]:
        several = len({view.topic for view in self.views.values()}) > 1
        return {topic_id: f"topic {view.topic} " for topic_id, view in self.views.items()} if several else {}
