"""What the oracle is asked, what it answers, and all that its checks look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ingest.oracle.sources import EventId, KafkaView, ManifestView
from ingest.oracle.tables import Lake, Position


@dataclass(frozen=True)
class Run:
    """What is to be judged, and what the test itself did to it.

    `excused_ids` were deleted by the test or lost in a recorded gap; `own_versions` are commits that the test made on the target.
    `valid_in_quarantine` allows valid records there (conflicting payloads); `must_quarantine` wants all Kafka records that have
    no readable id there, which holds for every format but `raw`. `payload_columns` are top-level columns with the same name in
    event and table, of type string, integer, decimal, boolean, double or timestamp.
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
    valid_in_quarantine: bool = False
    must_quarantine: bool = True

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

    def where(self, position: Position) -> str:
        return f"{self.run.table}: partition {position.partition} offset {position.offset}"
