"""The target, quarantine and ledger of a table, read once through deltalake as plain values."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from ingest.decode.row_hash import row_hashes
from ingest.lab.oracle.sources import (
    NOTHING,
    EventId,
    Key,
    Number,
    Of,
    OracleCommit,
    OraclePosting,
    Sums,
    added,
    id_text,
    plain_topic_id,
    read_log,
    value_hash,
)

# The columns of a key: epoch, batch, source and partition.
PLACES = {"target": ("_epoch", "_batch", "_source", "_partition"), "quarantine": ("epoch", "batch", "source", "partition")}


class Position(NamedTuple):
    """A record's position in Kafka. The tables have the number of its topic in place of the id."""

    topic_id: str
    partition: int
    offset: int


class Row(NamedTuple):
    """A row of the target, with the batch that wrote it."""

    event_id: EventId
    payload: tuple[Any, ...]
    number: Number


class Quarantined(NamedTuple):
    """A record in quarantine, with the hash of its bytes, the batch that wrote it, and the topic id that its row has beside the number."""

    state: str
    value_hash: str | None
    number: Number
    topic_id: str


class Statement(NamedTuple):
    """The statement of a posting: table and version of its commit, its epoch and number, its writer, and its name for the topic's id."""

    table: str
    version: int
    epoch: int
    number: int
    writer: str
    topic_id: str


Line = tuple[Statement, OraclePosting]
FIELDS = ("epoch", "batch", "source", "partition", "start_offset", "end_offset", "leader_epoch", "records_read", "present", "duplicate")
SUMS = tuple(f"{table}_{what}" for table in ("target", "quarantine") for what in ("rows", "offsets", "hash"))
STATEMENT = ("of_table", "version", "statement_epoch", "statement_batch", "writer", "topic_id")


@dataclass
class Lake:
    """The three tables and their logs. `doubled` counts positions that a table contains more than once.

    Check (e) fills the last two fields: `taken` has the rows that the test's own commits removed, by their version, and `blind` the tables
    whose removed rows cannot all be read.
    """

    folder: Path
    logs: Mapping[str, Sequence[OracleCommit]]
    ledger: Set[Line]
    id_columns: Sequence[str]
    target: dict[Position, Row] = field(default_factory=dict)
    target_ids: Counter[EventId] = field(default_factory=Counter)
    quarantine: dict[Position, Quarantined] = field(default_factory=dict)
    quarantine_ids: set[EventId] = field(default_factory=set)
    doubled: dict[str, Counter[Position]] = field(default_factory=dict)
    taken: dict[str, dict[int, dict[Key, Sums]]] = field(default_factory=lambda: {table: {} for table in PLACES})
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
    def logged(self) -> Set[Line]:
        """The postings of the engine's commits that the logs contain."""
        return {
            (Statement(table, commit.version, *commit.number, str((commit.metadata or {}).get("writer")), commit.topic(p.source)), p)
            for table in PLACES
            for commit in self.logs[table]
            if commit.ours(self.app_id)
            for p in commit.postings
        }

    @cached_property
    def lines(self) -> Sequence[Line]:
        """All postings, in the order of their statements; from the ledger if a log no longer contains the commit."""
        former = {line for line in self.ledger if line[0].version < self.first(line[0].table)}
        return sorted(self.logged | former, key=lambda line: (line[0][2:4], line[0], line[1][:5]))

    @cached_property
    def ranges(self) -> Mapping[Number, Mapping[Of, tuple[int, int]]]:
        """The offset ranges of every committed batch."""
        found: dict[Number, dict[Of, tuple[int, int]]] = {}
        for statement, posting in self.lines:
            if posting.why == "batch" and posting.start is not None and posting.end is not None:
                of = statement.topic_id, posting.partition
                found.setdefault((posting.epoch, posting.batch), {})[of] = (posting.start, posting.end)
        return found

    @cached_property
    def named(self) -> Sequence[tuple[str, int, str]]:
        """Where a statement or a line of the ledger says which topic id a number means: in their order, a number, the id."""
        found = [(*statement[2:4], f"the ledger, of {statement}", posting.source, statement.topic_id) for statement, posting in self.ledger]
        for table in PLACES:
            for commit in self.logs[table]:
                # A start that was cut off before it committed offsets has numbered topics that no row names.
                if commit.ours(self.app_id) and commit.kind not in ("fence", "rollback"):
                    found += [(*commit.number, f"{table} version {commit.version}", *each) for each in enumerate(commit.sources)]
        return [each[2:] for each in sorted(found) if each[4]]

    @cached_property
    def topics(self) -> dict[int, str]:
        """The topic ids by number."""
        return {number: topic_id for _, number, topic_id in self.named}

    def topic(self, source: int) -> str:
        """The topic id of this number; words if nothing says it."""
        return self.topics.get(source, f"of number {source}")

    @classmethod
    def read(cls, folder: Path, id_columns: Sequence[str], payload_columns: Sequence[str]) -> Lake:
        logs = {table: read_log(folder / table) for table in (*PLACES, "ledger")}
        rows = select(folder / "ledger", ("why", *FIELDS, *SUMS, *STATEMENT))
        split = 1 + len(FIELDS) + len(SUMS)
        lines = ((Statement._make((*row[split:-1], plain_topic_id(row[-1]))), OraclePosting.of(row[0], row[1:split])) for row in rows)
        lake = cls(folder, logs, frozenset(lines), id_columns)
        seen = {table: Counter[Position]() for table in PLACES}
        columns = len(id_columns)
        for epoch, batch, source, partition, offset, *values in select(
            folder / "target", [*PLACES["target"], "_offset", *id_columns, *payload_columns]
        ):
            position = Position(lake.topic(source), partition, offset)
            event_id = tuple(str(id_text(value)) for value in values[:columns])
            lake.target[position] = Row(event_id, tuple(values[columns:]), (epoch, batch))
            lake.target_ids[event_id] += 1
            seen["target"][position] += 1
        kept = [*PLACES["quarantine"], "offset", "topic_id", "state", "event_id", "value"]
        for epoch, batch, source, partition, offset, topic_id, state, named_id, value in select(folder / "quarantine", kept):
            position = Position(lake.topic(source), partition, offset)
            digest = None if value is None else value_hash(value)
            lake.quarantine[position] = Quarantined(state, digest, (epoch, batch), plain_topic_id(topic_id))
            if isinstance(named_id, str):
                lake.quarantine_ids.add(quarantined_id(named_id, columns))
            seen["quarantine"][position] += 1
        lake.doubled = {table: Counter({p: count for p, count in counts.items() if count > 1}) for table, counts in seen.items()}
        return lake

    def rows_at(self, table: str, version: int) -> Counter[Key]:
        """The row counts by key at this version; raises deltalake's error if files of the version are gone."""
        delta = DeltaTable(str(self.folder / table), version=version)
        columns = ", ".join(PLACES[table])
        rows = query(delta, f"SELECT {columns}, COUNT(*) FROM t GROUP BY {columns}")
        return Counter({(epoch, batch, source, partition): count for epoch, batch, source, partition, count in rows})

    def sums_at(self, table: str, version: int | None = None) -> dict[Key, Sums]:
        """The sums of the rows at this version (None: the newest); raises deltalake's error if files of the version are gone."""
        if not self.logs[table]:
            return {}
        offset, *ids = ("_offset", *self.id_columns) if table == "target" else ("offset",)
        names = ", ".join(f'"{name}"' for name in (*PLACES[table], offset, *ids))
        delta = DeltaTable(str(self.folder / table), version=version)
        rows = pa.table(QueryBuilder().register("t", delta).execute(f"SELECT {names} FROM t").read_all()).combine_chunks()
        place = [rows.column(number).cast(pa.int64()).combine_chunks() for number in range(5)]
        hashes = row_hashes([*(rows.column(5 + number).combine_chunks() for number in range(len(ids))), place[2], place[3], place[4]])
        found: dict[Key, Sums] = {}
        for *key, at, number in zip(*(column.to_pylist() for column in place), hashes.tolist(), strict=True):
            e, b, s, p = key
            found[e, b, s, p] = added(found.get((e, b, s, p), NOTHING), (1, at, number))
        return found


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
