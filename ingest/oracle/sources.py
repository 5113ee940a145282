"""What the oracle looks at, read by itself: manifests, Kafka, the Delta log. Nothing here is shared with the engine."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

EventId = tuple[str, ...]
# Behind the name of an operation that leaves nothing of the table before it.
OVERWRITE = " Overwrite"


class KafkaRecord(NamedTuple):
    """One visible record: its id as the oracle decodes it (None: not decodable), payload columns as JSON gave them, hash."""

    event_id: EventId | None
    payload: tuple[Any, ...]
    value_hash: str | None


@dataclass(frozen=True)
class KafkaView:
    """All that a read_committed consumer sees of one topic; `begin` and `end` (last stable offset) by partition."""

    topic: str
    topic_id: str
    records: Mapping[tuple[int, int], KafkaRecord]
    begin: Mapping[int, int]
    end: Mapping[int, int]


@dataclass
class ManifestView:
    """What the producers say of one topic; `committed` and `unknown` map an id to the hashes of its valid payloads, `poison_ids` one that
    can be read from a broken record to how that is broken."""

    given: bool = False
    committed: dict[EventId, set[str]] = field(default_factory=dict)
    unknown: dict[EventId, set[str]] = field(default_factory=dict)
    aborted: set[EventId] = field(default_factory=set)
    poison_ids: dict[EventId, str] = field(default_factory=dict)

    @property
    def aborted_only(self) -> set[EventId]:
        return self.aborted - self.committed.keys() - self.unknown.keys()


@dataclass(frozen=True)
class Commit:
    """One version of a Delta table, from its JSON file in `_delta_log`."""

    version: int
    operation: str
    metadata: Mapping[str, Any] | None
    txns: tuple[tuple[str, int], ...]
    adds_data: bool
    removes_data: bool

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return {int(p): (int(r[0]), int(r[1])) for p, r in (self.metadata or {}).get("ranges", {}).items()}

    @property
    def topic_id(self) -> str:
        return plain_topic_id((self.metadata or {}).get("topic_id"))


def plain_topic_id(text: str | None) -> str:
    """Kafka's 22 characters of base64url and the dashed form of a UUID are one id."""
    if text and re.fullmatch(r"[A-Za-z0-9_-]{22}", text):
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    return text or ""


def id_text(value: object) -> str | None:
    """A part of an event id as text; None where a value is none."""
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


def value_hash(value: bytes) -> str:
    """As manifests name a record's bytes."""
    return blake2b(value, digest_size=8).hexdigest()


def decode(value: bytes | None, id_columns: Sequence[str], payload_columns: Sequence[str]) -> KafkaRecord:
    """The oracle's own reading of a JSON value; decimals stay exact."""
    if value is None:
        return KafkaRecord(None, (), None)
    digest = value_hash(value)
    try:
        event = json.loads(value.decode("utf-8"), parse_float=Decimal)
    except (ValueError, RecursionError):
        return KafkaRecord(None, (), digest)
    if not isinstance(event, dict):
        return KafkaRecord(None, (), digest)
    parts = [id_text(event.get(column)) for column in id_columns]
    event_id = None if any(part is None for part in parts) else tuple(str(part) for part in parts)
    return KafkaRecord(event_id, tuple(event.get(column) for column in payload_columns), digest)


def read_kafka(
    bootstrap_servers: str,
    topic: str,
    id_columns: Sequence[str],
    payload_columns: Sequence[str],
    *,
    timeout_s: float = 120.0,
    options: Mapping[str, Any] | None = None,
) -> KafkaView:
    """Read the whole topic up to its last stable offset; raises TimeoutError when the broker does not deliver it."""
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

    common = {"bootstrap_servers": bootstrap_servers, **(options or {})}
    admin = KafkaAdminClient(**common)
    try:
        topic_id = plain_topic_id(str(admin.describe_topics([topic])[0]["topic_id"]))
    finally:
        admin.close()
    consumer = KafkaConsumer(
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        group_id=None,
        check_crcs=False,  # in Python, byte by byte
        max_poll_records=5000,
        **common,
    )
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        records: dict[tuple[int, int], KafkaRecord] = {}
        deadline = time.monotonic() + timeout_s
        while any(consumer.position(tp) < end[tp] for tp in partitions):
            if time.monotonic() > deadline:
                behind = {tp.partition: (consumer.position(tp), end[tp]) for tp in partitions}
                raise TimeoutError(f"topic {topic} was not read to its end in {timeout_s} s; position and end by partition: {behind}")
            for tp, batch in consumer.poll(timeout_ms=500).items():
                for record in batch:
                    if record.offset < end[tp]:
                        records[tp.partition, record.offset] = decode(record.value, id_columns, payload_columns)
    finally:
        consumer.close()
    return KafkaView(topic, topic_id, records, {t.partition: o for t, o in begin.items()}, {t.partition: o for t, o in end.items()})


def read_manifests(paths: Iterable[Path], topic: str) -> ManifestView:
    """The last line of a killed producer may be torn; an attempt without an end is of unknown outcome."""
    view = ManifestView()
    for path in paths:
        view.given = True
        begun: dict[tuple[int, int], Mapping[str, Any]] = {}
        lines = path.read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except ValueError as error:
                if number == len(lines):
                    continue
                raise ValueError(f"{path}: line {number} of {len(lines)} cannot be read") from error
            if entry["event"] == "begin":
                begun[entry["txn"], entry["attempt"]] = entry
            elif entry["event"] in {"committed", "aborted", "unknown"}:
                _add(view, begun.pop((entry["txn"], entry["attempt"])), entry["event"], topic)
        for entry in begun.values():
            _add(view, entry, "unknown", topic)
    return view


def _id(text: str) -> EventId:
    """An id as a manifest names it: of several columns, the parts with U+001F between them."""
    return tuple(text.split("\x1f"))


def _add(view: ManifestView, begun: Mapping[str, Any], ending: str, topic: str) -> None:
    lists = begun["topics"].get(topic, {"ids": [], "hashes": []})
    if ending == "aborted":
        view.aborted.update(map(_id, lists["ids"]))
        return
    known = view.committed if ending == "committed" else view.unknown
    for event_id, digest in zip(lists["ids"], lists["hashes"], strict=True):
        known.setdefault(_id(event_id), set()).add(digest)
    poison = [entry for entry in begun["poison"] if entry["topic"] == topic]
    view.poison_ids.update({_id(entry["id"]): str(entry["kind"]) for entry in poison if entry["id"] is not None})


def read_log(table: Path) -> list[Commit]:
    """The commits whose JSON still exists, in order; empty when there is no table."""
    files = sorted((table / "_delta_log").glob("*.json")) if (table / "_delta_log").is_dir() else []
    return [_commit(int(file.stem), file) for file in files if re.fullmatch(r"\d{20}", file.stem)]


def _commit(version: int, file: Path) -> Commit:
    operation, metadata, txns, adds, removes = "", None, [], False, False
    for line in file.read_text().splitlines():
        action = json.loads(line) if line.strip() else {}
        if info := action.get("commitInfo"):
            operation = str(info.get("operation", ""))
            if (info.get("operationParameters") or {}).get("mode") == "Overwrite":
                operation += OVERWRITE
            metadata = _metadata(info.get("userMetadata"))
        if txn := action.get("txn"):
            txns.append((str(txn["appId"]), int(txn["version"])))
        adds |= bool(action.get("add", {}).get("dataChange"))
        removes |= bool(action.get("remove", {}).get("dataChange"))
    return Commit(version, operation, metadata, tuple(txns), adds, removes)


def _metadata(text: object) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and value.get("oncelake") else None
