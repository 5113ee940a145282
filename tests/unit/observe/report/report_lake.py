"""A lake with all columns that a summary reads: times on the rows, bytes and reasons in the quarantine, results of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as T

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import BatchCommit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.table_definitions import TableDefinition
from ingest.observe.report.summary import Summary, summary
from ingest.quality import audited_version
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import proofs_folder
from ingest.verify.proof.proof_file import write_proof
from tests.unit.verify.proof_lake import CONTRACT, Lake

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SILENT = {"code": "BROKER_UNREACHABLE", "found": "no answer.", "expected": "a broker that answers.", "remedy": "start it."}
TIME = pa.timestamp("us", "UTC")
TIMES = tuple(T.StructField(name, T.TimestampType()) for name in ("_kafka_timestamp", "_ingested_at"))
KAFKA = (
    *(T.StructField(name, T.StringType()) for name in ("topic", "reason_code", "reason_detail")),
    T.StructField("value", T.BinaryType()),
    T.StructField("kafka_timestamp", T.TimestampType()),
)


class ReportLake(Lake):
    """Each batch of `at` seconds after NOW takes `took_s`, and its records are `old_s` old at its commit."""

    def __init__(self, folder: Path) -> None:
        self.at_s, self.took_s, self.old_s = 0.0, 1.0, 2.0
        self.reason, self.value, self.detail = "malformed_json", b"{", "the value is no JSON"
        super().__init__(folder)

    def _create(self, table: TableDefinition) -> None:
        more = {"target": TIMES, "quarantine": KAFKA}.get(Path(table.path).name, ())
        super()._create(replace(table, fields=(*table.fields, *more)))

    @property
    def committed_at(self) -> datetime:
        return NOW + timedelta(seconds=self.at_s)

    def batch_at(self, at_s: float, start: int, end: int, rows: Sequence[int], poison: Sequence[int] = (), **more: Any) -> None:
        """A batch whose commit is at this time, as Delta's own log cannot be set back: only the ledger has the time."""
        self.at_s, here = at_s, self.here
        self.batch(start, end, rows, poison, **more)
        self.keep()
        where = f"statement_epoch = {here.epoch} AND statement_batch = {here.number}"
        self.ledger.update(new_values={"committed_at": self.committed_at}, predicate=where)

    def quality(self, run: str, at_s: float, *failed: str | None, page: str | None = None) -> None:
        """A validation run with one expectation per severity that failed; None for one that passed."""
        rows = [
            {
                "run_id": run,
                "run_at": NOW + timedelta(seconds=at_s),
                "run_scope": "new",
                "version_to": 3,
                "severity": severity or "critical",
                "success": severity is None,
                "exception": None,
                "page": page,
            }
            for severity in failed
        ]
        types = {"run_at": TIME, "version_to": pa.int64(), "success": pa.bool_()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
        write_deltalake(self.places.quality, pa.Table.from_pylist(rows, schema), mode="append")

    def proven(self) -> Path:
        """Write the next proof file."""
        return write_proof(proofs_folder(self.places), self.proof())[0]

    def held(self) -> None:
        """The newest version is audited; then a check fails at the same one."""
        state = DeltaLog(LocalFiles(), self.places.target).state()
        assert state is not None
        audited_version.passed(LocalFiles(), self.places, state.snapshot, "run-a")
        audited_version.failed(LocalFiles(), self.places, state.snapshot, "run-b", "ids are not unique")

    def summary(self, contract: Contract = CONTRACT, hours: float = 24.0, answer: Any = SILENT, *, keep: bool = True) -> Summary:
        if keep:
            self.keep()
        return summary(contract, self.places, answer, hours)

    def _write(
        self, table: str, columns: dict[str, pa.Array], about: BatchCommit | None, mode: Literal["append", "overwrite"] = "append"
    ) -> None:
        number = len(next(iter(columns.values())))
        begun = self.committed_at - timedelta(seconds=self.took_s)
        asked = self.committed_at - timedelta(seconds=self.old_s)
        more: Mapping[str, tuple[Any, pa.DataType]] = {"_kafka_timestamp": (asked, TIME), "_ingested_at": (begun, TIME)}
        if table == "quarantine":
            texts = {"topic": self.topic.name, "reason_code": self.reason, "reason_detail": self.detail}
            more = {name: (text, pa.string()) for name, text in texts.items()}
            more |= {"value": (self.value, pa.binary()), "kafka_timestamp": (asked, TIME)}
        columns = columns | {name: pa.array([value] * number, type) for name, (value, type) in more.items()}
        super()._write(table, columns, about, mode)

    def set_state(self, state: str, *offsets: int) -> None:
        """Replay or drop quarantined records."""
        which = f"`offset` IN ({', '.join(map(str, offsets))})"
        DeltaTable(self.places.quarantine).update(updates={"state": f"'{state}'"}, predicate=which)
