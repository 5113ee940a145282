"""A run of the engine as the oracle sees it, made by hand through deltalake: good, until a test plants a wrong in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arro3.core import Array, DataType, Table
from deltalake import write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from ingest.oracle.judge import Run, Verdict, judge
from ingest.oracle.sources import KafkaView, decode

TOPIC_ID = "dd703122-c569-4932-91ac-151cf85d4dbf"
APP = "oncelake/shop/orders/q1/target"
TYPES = {
    "_partition": DataType.int32(),
    "partition": DataType.int32(),
    "amount": DataType.decimal128(18, 2),
    "ordered_at": DataType.timestamp("us", tz="UTC"),
    "captured": DataType.bool(),
    "value": DataType.binary(),
}
LATER = {"query_id": "q2", "epoch": 1}  # the checkpoint that a rebase has made
AS_IN_KAFKA = "as in Kafka"  # in place of the bytes of a record in quarantine
T0 = 1_735_689_600_012_000  # 2025-01-01T00:00:00.012Z


def value(order_id: str, amount: str = "12.50") -> bytes:
    return f'{{"order_id":"{order_id}","amount":{amount},"ordered_at":"2025-01-01T00:00:00.012Z","captured":true}}'.encode()


def row(partition: int, offset: int, order_id: str, amount: str = "12.5") -> dict[str, Any]:
    provenance = {"_topic_id": TOPIC_ID, "_partition": partition, "_offset": offset}
    return {**provenance, "order_id": order_id, "amount": amount, "ordered_at": T0, "captured": True}


def quarantined(partition: int, offset: int, batch_id: int, state: str = "open") -> dict[str, Any]:
    place = {"topic_id": TOPIC_ID, "partition": partition, "offset": offset}
    return {**place, "state": state, "event_id": None, "query_id": "q1", "batch_id": batch_id, "value": AS_IN_KAFKA}


def ledger(batch_id: int, partition: int, start: int, end: int, version: int, **counts: int) -> dict[str, Any]:
    named = {"kind": "batch", "query_id": "q1", "batch_id": batch_id, "topic_id": TOPIC_ID, "partition": partition}
    zero = {"records_read": 0, "inserted": 0, "duplicate": 0, "quarantined": 0, "replayed": 0, "gap": 0}
    return {**named, "start_offset": start, "end_offset": end, **zero, **counts, "target_version": version, "epoch": 0}


def rebase(batch_id: int, ends: tuple[int, int], begins: tuple[int, int], version: int) -> list[dict[str, Any]]:
    """What a rebase leaves behind this batch of q1, by partition: where q1 ended, and where q2 began."""
    former = [ledger(batch_id, p, at, at, version) | {"kind": "rebase"} for p, at in enumerate(ends)]
    return [*former, *(ledger(0, p, at, at, version) | {"kind": "rebase"} | LATER for p, at in enumerate(begins))]


@dataclass
class TargetCommit:
    rows: list[dict[str, Any]]
    batch_id: int = 0
    ranges: dict[str, list[int]] = field(default_factory=dict)
    query_id: str = "q1"
    app_id: str | None = APP
    txn_version: int | None = None
    metadata: bool = True
    topic_id: str = TOPIC_ID
    counts: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass
class Scene:
    """Partition 0: A B poison A COMMIT | C B (X aborted) D; partition 1: E F E |; batches end at the bar."""

    kafka: dict[tuple[int, int], bytes]
    commits: list[TargetCommit]
    quarantine: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    manifest: list[dict[str, Any]]
    quarantine_commits: list[tuple[int, list[dict[str, Any]]]] | None = None  # (batch id, rows); None: a commit a batch
    topic_id: str = TOPIC_ID

    def view(self) -> KafkaView:
        records = {place: decode(data, ["order_id"], ["amount", "ordered_at", "captured"]) for place, data in self.kafka.items()}
        return KafkaView("orders", self.topic_id, records, {0: 0, 1: 0}, {0: 9, 1: 3})

    def judge(self, lake: Path, **changes: Any) -> Verdict:
        """Write the tables, and ask the oracle."""
        self.write(lake)
        return self.ask(lake, **changes)

    def write(self, lake: Path) -> None:
        folder = lake / "shop" / "orders"
        for commit in self.commits:
            meta = {"oncelake": 1, "query_id": commit.query_id, "batch_id": commit.batch_id, "ranges": commit.ranges}
            meta |= {"topic_id": commit.topic_id, "counts": commit.counts}
            version = commit.batch_id if commit.txn_version is None else commit.txn_version
            append(
                folder / "target",
                commit.rows,
                row(0, 0, ""),
                CommitProperties(
                    custom_metadata={"userMetadata": json.dumps(meta)} if commit.metadata else None,
                    app_transactions=[Transaction(commit.app_id, version)] if commit.app_id else None,
                ),
            )
        self.write_quarantine(lake)
        append(folder / "ledger", self.ledger, ledger(0, 0, 0, 0, 0), CommitProperties())
        manifest = lake / "manifest.jsonl"
        manifest.write_text("".join(json.dumps(line) + "\n" for line in self.manifest) + '{"event":"beg')

    def write_quarantine(self, lake: Path) -> None:
        numbers = [0, *sorted({row["batch_id"] for row in self.quarantine} - {0})]
        whole = [(number, [row for row in self.quarantine if row["batch_id"] == number]) for number in numbers]
        for number, rows in self.quarantine_commits or whole:
            query_id = rows[0]["query_id"] if rows else "q1"
            pair = CommitProperties(app_transactions=[Transaction(f"oncelake/shop/orders/{query_id}/quarantine", number)])
            kept = [
                row | {"value": self.kafka.get((row["partition"], row["offset"]), b"") if row["value"] == AS_IN_KAFKA else row["value"]}
                for row in rows
            ]
            append(lake / "shop" / "orders" / "quarantine", kept, quarantined(0, 0, 0), pair)

    def ask(self, lake: Path, **changes: Any) -> Verdict:
        """Judge what is written, and what a test has made of it since."""
        manifest = lake / "manifest.jsonl"
        run = Run(lake, "shop", "orders", "orders", ("order_id",), ("amount", "ordered_at", "captured"), (manifest,))
        return judge(replace(run, **changes), self.view())


def append(table: Path, rows: list[dict[str, Any]], like: dict[str, Any], properties: CommitProperties) -> None:
    columns: dict[str, Any] = {}
    for name, example in like.items():
        values = [r[name] for r in rows]
        kind = TYPES.get(name)
        if kind is None:
            columns[name] = Array(values, type=DataType.int64() if isinstance(example, int) else DataType.utf8())
        elif name == "amount":
            columns[name] = Array(values, type=DataType.utf8()).cast(kind)
        elif name == "ordered_at":
            columns[name] = Array(values, type=DataType.int64()).cast(kind)
        else:
            columns[name] = Array(values, type=kind)
    write_deltalake(str(table), Table.from_pydict(columns), mode="append", commit_properties=properties)


def transaction(number: int, ending: str, *events: tuple[str, bytes]) -> list[dict[str, Any]]:
    hashes = [decode(data, ["order_id"], []).value_hash for _, data in events]
    orders = {"ids": [event_id for event_id, _ in events], "hashes": hashes, "partitions": [0] * len(events)}
    begin = {"event": "begin", "txn": number, "attempt": 1, "intent": "commit", "topics": {"orders": orders}, "poison": []}
    return [begin, {"event": ending, "txn": number, "attempt": 1}]


def good_scene() -> Scene:
    sent = {name: value(name) for name in "ABCDEFX"}
    kafka = {(0, 0): sent["A"], (0, 1): sent["B"], (0, 2): b'{"order_id', (0, 3): sent["A"], (0, 5): sent["C"], (0, 6): sent["B"]}
    kafka |= {(0, 8): sent["D"], (1, 0): sent["E"], (1, 1): sent["F"], (1, 2): sent["E"]}
    first = [row(0, 0, "A"), row(0, 1, "B"), row(1, 0, "E"), row(1, 1, "F")]
    return Scene(
        kafka,
        [
            TargetCommit(first, 0, {"0": [0, 5], "1": [0, 3]}),
            TargetCommit([row(0, 5, "C"), row(0, 8, "D")], 1, {"0": [5, 9], "1": [3, 3]}),
        ],
        [quarantined(0, 2, 0)],
        [
            ledger(0, 0, 0, 5, 0, records_read=4, inserted=2, duplicate=1, quarantined=1, gap=1),
            ledger(0, 1, 0, 3, 0, records_read=3, inserted=2, duplicate=1),
            ledger(1, 0, 5, 9, 1, records_read=3, inserted=2, duplicate=1, gap=1),
            ledger(1, 1, 3, 3, 1),
        ],
        [
            {"event": "sample", "version": 1},
            *transaction(0, "committed", *((n, sent[n]) for n in "ABAEFE")),
            *transaction(1, "committed", *((n, sent[n]) for n in "CBD")),
            *transaction(2, "aborted", ("X", sent["X"])),
            *transaction(3, "unknown", ("Y", value("Y"))),
        ],
    )
