"""The target, quarantine and ledger of a table, read once through deltalake as plain values."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder

from ingest.lab.oracle.sources import EventId, Number, OracleCommit, id_text, plain_topic_id, read_log, value_hash

# The columns with epoch, batch and partition.
PLACES = {"target": ("_epoch", "_batch", "_partition"), "quarantine": ("epoch", "batch", "partition")}
# Epoch, batch and partition: the key by which rows are counted.
Place = tuple[int, int, int]


class Position(NamedTuple):
    """A record's position in Kafka."""

    topic_id: str
    partition: int
    offset: int


class Row(NamedTuple):
    """A row of the target, with the batch that wrote it."""

    event_id: EventId
    payload: tuple[Any, ...]
    number: Number


class Quarantined(NamedTuple):
    """A record in quarantine, with the hash of its bytes and the batch that wrote it."""

    state: str
    value_hash: str | None
    number: Number


class OracleLedgerRow(NamedTuple):
    """One row of the ledger, with its offsets and counts as stored."""

    kind: str
    epoch: int
    batch: int
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    records_read: int
    inserted: int
    duplicate: int
    quarantined: int
    gap: int
    stood: int | None
    why: str | None
    target_version: int

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """The columns by which the ledger knows its rows."""
        return self.kind, self.epoch, self.batch, self.partition, self.start_offset

    @property
    def place(self) -> Place:
        return self.epoch, self.batch, self.partition


@dataclass
class Lake:
    """The three tables and their logs. `doubled` counts positions that a table contains more than once, `counted` its rows by place.

    Check (e) fills the last three fields: `history` has the rows of each version by place, `taken` the rows that the test's own commits
    removed, and `blind` the tables whose removed rows cannot all be read.
    """

    folder: Path
    logs: Mapping[str, Sequence[OracleCommit]]
    ledger: Sequence[OracleLedgerRow]
    target: dict[Position, Row] = field(default_factory=dict)
    target_ids: Counter[EventId] = field(default_factory=Counter)
    quarantine: dict[Position, Quarantined] = field(default_factory=dict)
    quarantine_ids: set[EventId] = field(default_factory=set)
    doubled: dict[str, Counter[Position]] = field(default_factory=dict)
    counted: dict[str, Counter[Place]] = field(default_factory=lambda: {table: Counter() for table in PLACES})
    taken: dict[str, Counter[Place]] = field(default_factory=lambda: {table: Counter() for table in PLACES})
    history: dict[tuple[str, int], Counter[Place]] = field(default_factory=dict)
    blind: set[str] = field(default_factory=set)

    @property
    def app_id(self) -> str:
        return f"oncelake/{self.folder.parent.name}/{self.folder.name}"

    def commits(self, table: str, *kinds: str) -> list[OracleCommit]:
        """The engine's own commits of these kinds: they have its userMetadata and a transaction id."""
        return [commit for commit in self.logs[table] if commit.kind in kinds and commit.transaction_id(self.app_id) is not None]

    def first(self, table: str) -> int:
        """The oldest version that the log still contains."""
        return self.logs[table][0].version if self.logs[table] else 0

    @cached_property
    def standing(self) -> set[Position]:
        """Positions of open and dropped records in the quarantine; a replayed record is a row of the target instead."""
        return {position for position, kept in self.quarantine.items() if kept.state in ("open", "dropped")}

    @cached_property
    def batches(self) -> list[OracleCommit]:
        return self.commits("target", "batch")

    @cached_property
    def ranges(self) -> Mapping[Number, Mapping[int, tuple[int, int]]]:
        """The offset ranges of every committed batch, by partition; from the ledger if the log no longer contains the commit."""
        from_ledger: dict[Number, dict[int, tuple[int, int]]] = {}
        for row in self.ledger:
            if row.kind == "batch" and row.target_version < self.first("target"):
                from_ledger.setdefault((row.epoch, row.batch), {})[row.partition] = (row.start_offset, row.end_offset)
        return {**from_ledger, **{commit.number: commit.ranges for commit in self.batches}}

    @cached_property
    def topics(self) -> dict[int, str]:
        """The topic id that each epoch reads."""
        from_ledger = {row.epoch: row.topic_id for row in self.ledger}
        return from_ledger | {commit.number[0]: commit.topic_id for commit in self.commits("target", "seek", "batch")}

    @classmethod
    def read(cls, folder: Path, id_columns: Sequence[str], payload_columns: Sequence[str]) -> Lake:
        ledger = [OracleLedgerRow(*row) for row in select(folder / "ledger", OracleLedgerRow._fields)]
        ledger = [row._replace(topic_id=plain_topic_id(row.topic_id)) for row in ledger]
        lake = cls(folder, {table: read_log(folder / table) for table in (*PLACES, "ledger")}, ledger)
        seen = {table: Counter[Position]() for table in PLACES}
        columns = len(id_columns)
        for epoch, batch, partition, offset, *values in select(
            folder / "target", [*PLACES["target"], "_offset", *id_columns, *payload_columns]
        ):
            position = Position(lake.topics.get(epoch, ""), partition, offset)
            event_id = tuple(str(id_text(value)) for value in values[:columns])
            lake.target[position] = Row(event_id, tuple(values[columns:]), (epoch, batch))
            lake.target_ids[event_id] += 1
            lake.counted["target"][epoch, batch, partition] += 1
            seen["target"][position] += 1
        kept = [*PLACES["quarantine"], "topic_id", "offset", "state", "event_id", "value"]
        for epoch, batch, partition, topic_id, offset, state, named_id, value in select(folder / "quarantine", kept):
            position = Position(plain_topic_id(topic_id), partition, offset)
            lake.quarantine[position] = Quarantined(state, None if value is None else value_hash(value), (epoch, batch))
            if isinstance(named_id, str):
                lake.quarantine_ids.add(quarantined_id(named_id, columns))
            lake.counted["quarantine"][epoch, batch, partition] += 1
            seen["quarantine"][position] += 1
        lake.doubled = {table: Counter({p: count for p, count in counts.items() if count > 1}) for table, counts in seen.items()}
        return lake

    def rows_at(self, table: str, version: int) -> Counter[Place]:
        """The row counts by place at this version; raises deltalake's error if files of the version are gone."""
        delta = DeltaTable(str(self.folder / table), version=version)
        columns = ", ".join(PLACES[table])
        return Counter({(row[0], row[1], row[2]): row[3] for row in query(delta, f"SELECT {columns}, COUNT(*) FROM t GROUP BY {columns}")})


def quarantined_id(text: str, columns: int) -> EventId:
    """An event id from the quarantine's text; with several columns, the text is a JSON array of their values."""
    return (text,) if columns == 1 else tuple(map(str, json.loads(text)))


def select(table: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """All rows; empty if the table does not exist. Decimals are exact, timestamps are in UTC."""
    if not (table / "_delta_log").is_dir():
        return []
    delta = DeltaTable(str(table))
    types = {f.name: str(getattr(f.type, "type", f.type)) for f in delta.schema().fields}
    parts: list[str] = []
    convert: list[Callable[[Any], Any] | None] = []
    for column in columns:
        kind = types.get(column, "")
        if kind.startswith("decimal"):
            parts.append(f'CAST("{column}" AS VARCHAR)')
            convert.append(Decimal)
        elif kind.startswith("timestamp"):
            parts.append(f'CAST(CAST("{column}" AS TIMESTAMP(6)) AS BIGINT)')
            convert.append(_utc)
        else:
            parts.append(f'"{column}"')
            convert.append(None)
    rows = query(delta, f"SELECT {', '.join(parts)} FROM t")
    if not any(convert):
        return rows
    return [tuple(v if c is None or v is None else c(v) for v, c in zip(row, convert, strict=True)) for row in rows]


def query(delta: DeltaTable, sql: str) -> list[tuple[Any, ...]]:
    """Run SQL over the table, which is named t in the query."""
    result = QueryBuilder().register("t", delta).execute(sql).read_all()
    return list(zip(*(column.to_pylist() for column in result.columns), strict=True))


def _utc(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
