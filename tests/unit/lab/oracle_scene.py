"""A run of the engine as the oracle reads it, written by hand through deltalake. It is correct until a test injects an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from ingest.decode.row_hash import row_hashes
from ingest.lab.oracle import JudgedRun, OracleVerdict, judge
from ingest.lab.oracle.oracle_tables import FIELDS, STATEMENT, SUMS
from ingest.lab.oracle.sources import KafkaRecord, KafkaView, decode

TOPIC_ID = "dd703122-c569-4932-91ac-151cf85d4dbf"
APP = "oncelake/shop/orders"
PAYLOAD = ("amount", "ordered_at", "captured")
TYPES = {
    **dict.fromkeys(("_partition", "partition", "_epoch", "epoch", "statement_epoch"), DataType.int32()),
    **dict.fromkeys(("order_id", "topic_id", "state", "event_id", "why", "writer", "of_table"), DataType.utf8()),
    **dict.fromkeys(("_source", "source"), DataType.int16()),
    **dict.fromkeys(("target_hash", "quarantine_hash"), DataType.decimal128(20, 0)),
    "amount": DataType.decimal128(18, 2),
    "ordered_at": DataType.timestamp("us", tz="UTC"),
    "captured": DataType.bool(),
    "value": DataType.binary(),
}
LEDGER = ("why", *FIELDS, *SUMS, *STATEMENT)
NONE = [0] * 9
AS_IN_KAFKA = "as in Kafka"  # placeholder for the bytes of a quarantined record
T0 = 1_735_689_600_012_000  # 2025-01-01T00:00:00.012Z
FIRST, SECOND, AGAIN = (1, 2), (1, 3), (2, 2)  # epoch and number of a batch

Rows = list[dict[str, Any]]
Records = dict[tuple[int, int], bytes]
# A partition: of source 0, or with its number.
Of = int | tuple[int, int]


def value(order_id: str, amount: str = "12.50") -> bytes:
    return f'{{"order_id":"{order_id}","amount":{amount},"ordered_at":"2025-01-01T00:00:00.012Z","captured":true}}'.encode()


def row(place: tuple[int, int], order_id: str, batch: tuple[int, int] = FIRST, amount: str = "12.5", source: int = 0) -> dict[str, Any]:
    provenance = {"_source": source, "_partition": place[0], "_offset": place[1], "_epoch": batch[0], "_batch": batch[1]}
    return {**provenance, "order_id": order_id, "amount": amount, "ordered_at": T0, "captured": True}


def quarantined(place: tuple[int, int], batch: tuple[int, int] = FIRST, topic_id: str = TOPIC_ID, source: int = 0) -> dict[str, Any]:
    where = {"topic_id": topic_id, "source": source, "partition": place[0], "offset": place[1], "epoch": batch[0], "batch": batch[1]}
    return {**where, "state": "open", "event_id": None, "value": AS_IN_KAFKA}


def sums_of(rows: Rows) -> list[int]:
    """The sums of target rows, or else of quarantined records."""
    columns = []
    for name in ("_source", "_partition", "_offset") if rows and "_offset" in rows[0] else ("source", "partition", "offset"):
        columns.append(pa.array([each[name] for each in rows], pa.int64()))
    ids = [pa.array([each["order_id"] for each in rows])] if rows and "order_id" in rows[0] else []
    return [len(rows), sum(columns[2].to_pylist()), sum(row_hashes([*ids, *columns]).tolist()) % 2**64]


def less(sums: list[int]) -> list[int]:
    return [-sums[0], -sums[1], -sums[2] % 2**64]


@dataclass
class Statement:
    """A commit on target or quarantine: it appends rows, or deletes (`rollback`, `upkeep`) or updates (`mark`) the rows that match `where`.

    `counts` are what a batch's posting has after its range, by partition (`Scene.book`); `more` are other postings by reason. `source` is
    the number of a partition that has none.
    """

    kind: str
    epoch: int = 0
    number: int = 0
    rows: Rows = field(default_factory=list)
    ranges: dict[Any, list[int]] = field(default_factory=dict)
    starts: dict[Any, int] = field(default_factory=dict)
    gaps: dict[Any, list[list[int]]] = field(default_factory=dict)
    counts: dict[Any, list[Any]] = field(default_factory=dict)
    more: dict[str, list[list[Any]]] = field(default_factory=dict)
    snapshots: dict[str, int] = field(default_factory=dict)
    where: str = ""
    sources: tuple[str, ...] = (TOPIC_ID,)
    source: int = 0
    app_id: str | None = APP
    txn_version: int | None = None
    metadata: dict[str, Any] | None = field(default_factory=dict)

    def alter(self, **changes: Any) -> Statement:
        self.__dict__.update(changes)
        return self

    def of(self, partition: Of) -> tuple[int, int]:
        return partition if isinstance(partition, tuple) else (self.source, partition)

    def postings(self) -> dict[str, list[list[Any]]]:
        mine = [self.epoch, self.number]
        begin = [[*mine, *self.of(p), start, start, None, *NONE] for p, start in self.starts.items()]
        # A later start that commits offsets goes on with source 0, and the others join.
        on = [each for each in begin if self.kind == "start" and self.epoch > 1 and not each[2]]
        gaps = [[*mine, *self.of(p), start, end, None, *NONE] for p, each in self.gaps.items() for start, end in each]
        batches = [[*mine, *self.of(p), *at, None, *self.counts.get(p, NONE)] for p, at in self.ranges.items()]
        begin = [each for each in begin if each not in on]
        found = {"start": on, "first" if self.kind == "start" else "seek": begin, "gap": gaps, "batch": batches, **self.more}
        return {why: each for why, each in found.items() if each}

    def head(self) -> dict[str, Any]:
        metadata = {"oncelake": 3, "kind": self.kind, "pipeline": "shop", "table": "orders", "epoch": self.epoch, "batch": self.number}
        metadata |= {
            "writer": f"writer of epoch {self.epoch}",
            "snapshots": {table: {"version": at} for table, at in self.snapshots.items()},
        }
        metadata |= {} if self.kind == "upkeep" else {"sources": [["any name", each, ""] for each in self.sources]}
        return metadata | {"postings": self.postings(), **(self.metadata or {})}

    def properties(self) -> CommitProperties:
        version = self.epoch * 2**32 + self.number if self.txn_version is None else self.txn_version
        return CommitProperties(
            custom_metadata=None if self.metadata is None else {"userMetadata": json.dumps(self.head())},
            app_transactions=[Transaction(self.app_id, version)] if self.app_id and self.kind not in ("mark", "upkeep") else None,
        )

    def commit(self, table: Path, like: dict[str, Any]) -> Rows:
        """Commit it; returns its lines of the ledger."""
        if self.kind in ("rollback", "upkeep"):
            DeltaTable(str(table)).delete(self.where, commit_properties=self.properties())
        elif self.kind == "mark":
            DeltaTable(str(table)).update({"state": "'replayed'"}, predicate=self.where, commit_properties=self.properties())
        else:
            append(table, self.rows, like, self.properties())
        head, version = self.head(), DeltaTable(str(table)).version()
        of, ids = (
            [table.name, version, self.epoch, self.number, head["writer"]],
            dict(enumerate(each[1] for each in head.get("sources", ()))),
        )
        lines = [[why, *fields, *of, ids.get(fields[2], "")] for why, each in head["postings"].items() for fields in each]
        return [dict(zip(LEDGER, line, strict=True)) for line in lines]


def fence(epoch: int) -> Statement:
    return Statement("fence", epoch)


def seek(epoch: int, starts: dict[Any, int], **more: Any) -> Statement:
    return Statement("start" if epoch == 1 else "seek", epoch, 1, starts=starts, **more)


def batch(number: tuple[int, int], ranges: dict[Any, list[int]], rows: Rows = [], **more: Any) -> Statement:  # noqa: B006
    return Statement("batch", *number, rows=list(rows), ranges=ranges, **more)


@dataclass
class Scene:
    """Partition 0: A B poison A COMMIT | C B (X aborted) D. Partition 1: E F E |. A batch ends at each bar. Target versions: 0 the fence,
    1 the start, 2 and 3 the batches. Quarantine versions: 0 the fence, 1 the poison. `in_ledger` changes the lines before they are
    written. `others` are other topics by number: id and records, all in partition 0."""

    kafka: Records
    target: list[Statement]
    quarantine: list[Statement]
    manifest: Rows
    lines: Rows = field(default_factory=list)
    in_ledger: Callable[[Rows], object] = lambda lines: None
    topic_id: str = TOPIC_ID
    begin: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    end: dict[int, int] = field(default_factory=lambda: {0: 9, 1: 3})
    others: dict[int, tuple[str, Records]] = field(default_factory=dict)

    def view(self) -> KafkaView:
        shown = {place: data for place, data in self.kafka.items() if place[1] >= self.begin[place[0]]}
        return KafkaView("orders", self.topic_id, decoded(shown), self.begin, self.end)

    def views(self) -> tuple[KafkaView, ...]:
        """All topics; the name of another one is `topic-` and its number."""
        others = [KafkaView(f"topic-{n}", id, decoded(records), {0: 0}, {0: len(records)}) for n, (id, records) in self.others.items()]
        return (self.view(), *others)

    def records(self, source: int) -> Records:
        return self.others[source][1] if source in self.others else self.kafka

    def book(self, *statements: Statement) -> Scene:
        """Make the postings of these batches, or else of those that have none, from what they add now."""
        for each in statements or [each for each in self.target if each.kind == "batch" and not each.counts]:
            with_it = [row for other in self.quarantine if (other.epoch, other.number) == (each.epoch, each.number) for row in other.rows]
            for of, (start, end) in each.ranges.items():
                source, p = each.of(of)
                rows = [r for r in each.rows if (r["_source"], r["_partition"]) == (source, p)]
                kept = [r for r in with_it if (r["source"], r["partition"]) == (source, p)]
                read = sum(place[0] == p and start <= place[1] < end for place in self.records(source))
                each.counts[of] = [read, read - len(rows) - len(kept), 0, *sums_of(rows), *sums_of(kept)]
        return self

    def judge(self, lake: Path, **changes: Any) -> OracleVerdict:
        """Write the tables and run the oracle."""
        self.write(lake)
        return self.ask(lake, **changes)

    def write(self, lake: Path) -> None:
        self.book()
        self.write_quarantine(lake)
        self.write_target(lake)
        self.in_ledger(self.lines)
        append(lake / "shop/orders/ledger", self.lines, dict.fromkeys(LEDGER), CommitProperties())
        self.lines = []
        (lake / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.manifest) + '{"event":"beg')

    def write_quarantine(self, lake: Path) -> None:
        for statement in self.quarantine:
            for each in statement.rows:
                if each["value"] == AS_IN_KAFKA:
                    each["value"] = self.records(each["source"]).get((each["partition"], each["offset"]), b"")
            self.lines += statement.commit(lake / "shop/orders/quarantine", quarantined((0, 0)))
        self.quarantine = []

    def write_target(self, lake: Path) -> None:
        for statement in self.target:
            self.lines += statement.commit(lake / "shop/orders/target", row((0, 0), ""))
        self.target = []

    def ask(self, lake: Path, **changes: Any) -> OracleVerdict:
        """Judge the written tables, with all changes that a test has made since."""
        views = self.views()
        topics = tuple(view.topic for view in views)
        run = JudgedRun(lake, "shop", "orders", topics, ("order_id",), PAYLOAD, (lake / "manifest.jsonl",))
        return judge(replace(run, **changes), *views)


def decoded(records: Records) -> dict[tuple[int, int], KafkaRecord]:
    return {place: decode(data, ["order_id"], PAYLOAD) for place, data in records.items()}


def append(table: Path, rows: Rows, like: dict[str, Any], properties: CommitProperties) -> None:
    columns: dict[str, Any] = {}
    for name in like:
        plain = {"ordered_at": DataType.int64(), **dict.fromkeys(("amount", "target_hash", "quarantine_hash"), DataType.utf8())}.get(name)
        kind = TYPES.get(name, DataType.int64())
        values = Array(
            [str(each[name]) if name.endswith("_hash") and each[name] is not None else each[name] for each in rows], type=plain or kind
        )
        columns[name] = values.cast(kind) if plain else values
    write_deltalake(str(table), Table.from_pydict(columns), mode="append", commit_properties=properties)


def transaction(number: int, ending: str, *events: tuple[str, bytes], topic: str = "orders") -> Rows:
    hashes = [decode(data, ["order_id"], []).value_hash for _, data in events]
    sent = {"ids": [event_id for event_id, _ in events], "hashes": hashes, "partitions": [0] * len(events)}
    begin = {"event": "begin", "txn": number, "attempt": 1, "intent": "commit", "topics": {topic: sent}, "poison": []}
    return [begin, {"event": ending, "txn": number, "attempt": 1}]


def good_scene() -> Scene:
    sent = {name: value(name) for name in "ABCDEFX"}
    kafka = {(0, 0): sent["A"], (0, 1): sent["B"], (0, 2): b'{"order_id', (0, 3): sent["A"], (0, 5): sent["C"], (0, 6): sent["B"]}
    kafka |= {(0, 8): sent["D"], (1, 0): sent["E"], (1, 1): sent["F"], (1, 2): sent["E"]}
    first = [row((0, 0), "A"), row((0, 1), "B"), row((1, 0), "E"), row((1, 1), "F")]
    ranges: dict[int, list[int]] = {0: [0, 5], 1: [0, 3]}
    return Scene(
        kafka,
        [
            fence(1),
            seek(1, {0: 0, 1: 0}),
            batch(FIRST, ranges, first),
            batch(SECOND, {0: [5, 9], 1: [3, 3]}, [row((0, 5), "C", SECOND), row((0, 8), "D", SECOND)]),
        ],
        [fence(1), batch(FIRST, {}, [quarantined((0, 2))])],
        [
            {"event": "sample", "version": 1},
            *transaction(0, "committed", *((n, sent[n]) for n in "ABAEFE")),
            *transaction(1, "committed", *((n, sent[n]) for n in "CBD")),
            *transaction(2, "aborted", ("X", sent["X"])),
            *transaction(3, "unknown", ("Y", value("Y"))),
        ],
    ).book()
