"""Target, quarantine and ledger of a table, read once through deltalake and as plain values."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder

from ingest.oracle.sources import OVERWRITE, Commit, EventId, id_text, plain_topic_id, read_log, value_hash

LEDGER_COLUMNS = (
    *("kind", "query_id", "batch_id", "topic_id", "partition", "start_offset", "end_offset"),
    *("records_read", "inserted", "duplicate", "quarantined", "replayed", "gap", "target_version", "epoch"),
)


class Position(NamedTuple):
    """Where a record is in Kafka."""

    topic_id: str
    partition: int
    offset: int


# What these take away leaves the batches before them in force.
LEAVE_BATCHES = ("DELETE", "UPDATE")


def _replaces(operation: str) -> bool:
    """By its name: it may be of a table that holds no row."""
    return operation == "RESTORE" or "REPLACE TABLE" in operation or operation.endswith(OVERWRITE)


def _leaves_out(commit: Commit) -> bool:
    return _replaces(commit.operation) or (commit.removes_data and commit.operation not in LEAVE_BATCHES)


class LedgerRow(NamedTuple):
    """One row of the ledger; offsets and counts as it states them."""

    kind: str
    query_id: str
    batch_id: int
    topic_id: str
    partition: int
    start: int
    end: int
    read: int
    inserted: int
    duplicate: int
    quarantined: int
    replayed: int
    gap: int
    target_version: int
    epoch: int

    @property
    def key(self) -> tuple[str, int, int]:
        return self.query_id, self.batch_id, self.partition


@dataclass
class Lake:
    """The three tables. `target` maps a position to (id, payload), `quarantine` to its state, `quarantine_values` to the hash of the
    bytes kept there, `quarantined_in` to the batch (query id, number) named there; `inserted` and `taken` are filled by (e): rows gained
    by (version, partition), and rows that the test took from the quarantine by ledger key."""

    folder: Path
    target: Mapping[Position, tuple[EventId, tuple[Any, ...]]]
    target_ids: Counter[EventId]
    doubled_positions: dict[Position, int]
    quarantine: Mapping[Position, str]
    quarantine_doubled: dict[Position, int]
    quarantine_ids: set[EventId]
    quarantine_values: dict[Position, str | None]
    quarantined_in: dict[Position, tuple[str, int]]
    quarantined_by: Counter[tuple[str, int, int]]
    ledger: Sequence[LedgerRow]
    target_log: Sequence[Commit]
    quarantine_log: Sequence[Commit]
    ledger_log: Sequence[Commit]
    inserted: dict[tuple[int, int], int]
    taken: Counter[tuple[str, int, int]]

    @property
    def batches(self) -> list[Commit]:
        """Target commits that are micro-batches: pair and ranges."""
        return [c for c in self.target_log if c.metadata and "ranges" in c.metadata and any(a.endswith("/target") for a, _ in c.txns)]

    @property
    def replaced(self) -> list[int]:
        """Versions, a RESTORE or an overwrite, after which it is not known which of the batches before are in force."""
        return [commit.version for commit in self.target_log if _leaves_out(commit)]

    @property
    def quarantine_harmed(self) -> bool:
        """Whether the quarantine lacks, or has lacked, what batches have put there, but for rows that a DELETE of the test took."""
        kept = (self.quarantined_by[row.key] + self.taken[row.key] >= row.quarantined for row in self.ledger if row.kind == "batch")
        return any(map(_leaves_out, self.quarantine_log)) or not all(kept)

    @classmethod
    def read(cls, folder: Path, id_columns: Sequence[str], payload_columns: Sequence[str]) -> Lake:
        target: dict[Position, tuple[EventId, tuple[Any, ...]]] = {}
        ids: Counter[EventId] = Counter()
        positions: Counter[Position] = Counter()
        for row in select(folder / "target", ["_topic_id", "_partition", "_offset", *id_columns, *payload_columns]):
            position = Position(plain_topic_id(row[0]), row[1], row[2])
            event_id = tuple(str(id_text(value)) for value in row[3 : 3 + len(id_columns)])
            target[position] = (event_id, row[3 + len(id_columns) :])
            ids[event_id] += 1
            positions[position] += 1
        quarantine: dict[Position, str] = {}
        counted: Counter[Position] = Counter()
        quarantine_ids: set[EventId] = set()
        quarantined_in: dict[Position, tuple[str, int]] = {}
        quarantined_by: Counter[tuple[str, int, int]] = Counter()
        values: dict[Position, str | None] = {}
        kept = ["topic_id", "partition", "offset", "state", "event_id", "query_id", "batch_id", "value"]
        for row in select(folder / "quarantine", kept):
            position = Position(plain_topic_id(row[0]), row[1], row[2])
            quarantine[position] = row[3]
            counted[position] += 1
            values[position] = None if row[7] is None else value_hash(row[7])
            if isinstance(row[4], str):
                quarantine_ids.add(quarantined_id(row[4], len(id_columns)))
            quarantined_in[position] = (row[5], row[6])
            quarantined_by[row[5], row[6], row[1]] += 1
        ledger = [
            LedgerRow(*row)._replace(topic_id=plain_topic_id(row[3]))
            for row in select(
                folder / "ledger",
                LEDGER_COLUMNS,
            )
        ]
        return cls(
            folder,
            target,
            ids,
            {position: count for position, count in positions.items() if count > 1},
            quarantine,
            {position: count for position, count in counted.items() if count > 1},
            quarantine_ids,
            values,
            quarantined_in,
            quarantined_by,
            ledger,
            read_log(folder / "target"),
            read_log(folder / "quarantine"),
            read_log(folder / "ledger"),
            {},
            Counter(),
        )


def quarantined_id(text: str, columns: int) -> EventId:
    """An event id as the quarantine names it: of several columns, a JSON array of their texts."""
    return (text,) if columns == 1 else tuple(map(str, json.loads(text)))


def select(table: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """All rows; empty when the table does not exist. Decimals come exact, timestamps in UTC."""
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
    """Run SQL over the table, which is called t."""
    result = QueryBuilder().register("t", delta).execute(sql).read_all()
    return list(zip(*(column.to_pylist() for column in result.columns), strict=True))


def _utc(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
