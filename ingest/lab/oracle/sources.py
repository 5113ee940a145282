"""The oracle's own readers of manifests, Kafka and the Delta log. They share nothing with the engine."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

EventId = tuple[str, ...]
# Epoch and number in the epoch: 0 is the fence, 1 a seek or a roll-back, batches start at 2.
Number = tuple[int, int]
# A topic's id, and a partition of it.
Of = tuple[str, int]
# Epoch, batch, source (the number of the topic) and partition of rows.
Key = tuple[int, int, int, int]
# The number of rows, the sum of their offsets, and the sum of their hashes modulo 2^64.
Sums = tuple[int, int, int]
NOTHING: Final[Sums] = (0, 0, 0)
# These kinds of commit are the engine's only with their transaction id.
FENCED: Final = ("fence", "start", "seek", "batch", "rollback", "replay", "swap", "state")
BEGIN: Final = ("first", "start", "seek")


class KafkaRecord(NamedTuple):
    """One visible record: the id that the oracle decodes (None: not decodable), the payload columns as parsed from JSON, the hash."""

    event_id: EventId | None
    payload: tuple[Any, ...]
    value_hash: str | None


@dataclass(frozen=True)
class KafkaView:
    """Everything that a read_committed consumer sees of one topic; `begin` and `end` (last stable offset) are by partition."""

    topic: str
    topic_id: str
    records: Mapping[tuple[int, int], KafkaRecord]
    begin: Mapping[int, int]
    end: Mapping[int, int]


@dataclass
class ManifestView:
    """The producers' manifests, as far as they are about the topics of a table.

    `committed` and `unknown` map an id to the hashes of its valid payloads. `poison_ids` maps an id that can be read from a broken record
    to the record's poison kind.
    """

    given: bool = False
    committed: dict[EventId, set[str]] = field(default_factory=dict)
    unknown: dict[EventId, set[str]] = field(default_factory=dict)
    aborted: set[EventId] = field(default_factory=set)
    poison_ids: dict[EventId, str] = field(default_factory=dict)

    @property
    def aborted_only(self) -> set[EventId]:
        return self.aborted - self.committed.keys() - self.unknown.keys()


class OraclePosting(NamedTuple):
    """A statement's effect on the rows of one key, as the engine wrote it into a commit or the ledger.

    `target` and `present` are None if a later posting of the key says them.
    """

    why: str
    epoch: int
    batch: int
    source: int
    partition: int
    start: int | None
    end: int | None
    read: int
    present: int | None
    duplicate: int
    target: Sums | None
    quarantine: Sums

    @classmethod
    def of(cls, why: str, fields: Sequence[Any]) -> OraclePosting:
        """Of its reason and its 16 fields; the leader epoch after the offsets concerns nobody here."""
        numbers = [None if field is None else int(field) for field in (*fields[:6], *fields[7:])]
        target = None if numbers[9] is None else tuple(numbers[9:12])
        return cls._make((why, *numbers[:9], target, tuple(numbers[12:])))

    @property
    def key(self) -> Key:
        return self.epoch, self.batch, self.source, self.partition

    def sums(self, table: str) -> Sums:
        """What it adds to target or quarantine, as far as it says."""
        return (self.target or NOTHING) if table == "target" else self.quarantine


def added(one: Sums, other: Sums, sign: int = 1) -> Sums:
    """The sum of two sums, or with -1 their difference."""
    return one[0] + sign * other[0], one[1] + sign * other[1], (one[2] + sign * other[2]) % 2**64


@dataclass(frozen=True)
class OracleCommit:
    """One version of a Delta table, from its JSON file in `_delta_log`; `replaces`: a RESTORE, a REPLACE TABLE or a full overwrite.

    `restored` is the version that a RESTORE went back to. `metadata` is the engine's userMetadata (its BatchCommit), and `kind`, `number`,
    `sources` (the topics' ids by number) and `postings` are taken from it.
    """

    version: int
    operation: str
    timestamp_ms: int
    metadata: Mapping[str, Any] | None
    txns: tuple[tuple[str, int], ...]
    adds_data: bool
    removes_data: bool
    replaces: bool
    restored: int
    kind: str
    number: Number
    sources: tuple[str, ...]
    postings: tuple[OraclePosting, ...]

    def topic(self, source: int) -> str:
        """The id of the topic with this number; empty if the commit names none."""
        return self.sources[source] if source < len(self.sources) else ""

    @cached_property
    def ranges(self) -> Mapping[Of, tuple[int, int]]:
        """The offsets that a batch has read."""
        return {of: (start, end) for of, start, end in self._of("batch")}

    @cached_property
    def starts(self) -> Mapping[Of, int]:
        """The offsets at which an epoch begins."""
        return {of: start for of, start, _ in self._of(*BEGIN)}

    @cached_property
    def going_on(self) -> Set[Of]:
        """Those partitions of `starts` that an earlier epoch has read, and that this one reads from there on."""
        return {of for of, *_ in self._of("start")}

    @cached_property
    def gaps(self) -> Sequence[tuple[Of, int, int]]:
        """Partition, start and end of the offsets that a seek leaves out."""
        return self._of("gap")

    def _of(self, *whys: str) -> list[tuple[Of, int, int]]:
        here = [each for each in self.postings if each.why in whys]
        return [((self.topic(p.source), p.partition), p.start, p.end) for p in here if p.start is not None and p.end is not None]

    def saw(self, table: str) -> int:
        """The version of target or quarantine that the writer looked at before."""
        return int((((self.metadata or {}).get("snapshots") or {}).get(table) or {}).get("version", -1))

    def ours(self, app_id: str) -> bool:
        """Whether it is the engine's."""
        return self.metadata is not None and (self.kind not in FENCED or self.transaction_id(app_id) == self.number)

    def transaction_id(self, app_id: str) -> Number | None:
        """Epoch and number in the commit's transaction id for this app id; None if it has none."""
        return next((divmod(version, 2**32) for app, version in self.txns if app == app_id), None)


def plain_topic_id(text: str | None) -> str:
    """A topic id as a dashed UUID; Kafka also writes the same id as 22 characters of base64url."""
    if text and re.fullmatch(r"[A-Za-z0-9_-]{22}", text):
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    return text or ""


def id_text(value: object) -> str | None:
    """A part of an event id as text; None if the value cannot be part of an id."""
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


def value_hash(value: bytes) -> str:
    """The hash by which manifests identify a record's bytes."""
    return blake2b(value, digest_size=8).hexdigest()


def decode(value: bytes | None, id_columns: Sequence[str], payload_columns: Sequence[str]) -> KafkaRecord:
    """The oracle's own decoder of a JSON value; decimals stay exact."""
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
    """Read the whole topic up to its last stable offset; raises TimeoutError if that takes longer than `timeout_s`."""
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
        check_crcs=False,  # slow: pure Python, byte by byte
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


def read_manifests(paths: Iterable[Path], *topics: str) -> ManifestView:
    """Read what the producers' manifests say of these topics; an attempt without an end has an unknown outcome.

    The last line of a killed producer may be torn. Raises ValueError for any other line that cannot be read.
    """
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
                _add(view, begun.pop((entry["txn"], entry["attempt"])), entry["event"], topics)
        for entry in begun.values():
            _add(view, entry, "unknown", topics)
    return view


def _add(view: ManifestView, begun: Mapping[str, Any], ending: str, topics: Sequence[str]) -> None:
    for topic in topics:
        lists = begun["topics"].get(topic, {"ids": [], "hashes": []})
        ids = [tuple(text.split("\x1f")) for text in lists["ids"]]
        if ending == "aborted":
            view.aborted.update(ids)
            continue
        known = view.committed if ending == "committed" else view.unknown
        for event_id, digest in zip(ids, lists["hashes"], strict=True):
            known.setdefault(event_id, set()).add(digest)
        poison = [entry for entry in begun["poison"] if entry["topic"] == topic]
        view.poison_ids.update({tuple(entry["id"].split("\x1f")): str(entry["kind"]) for entry in poison if entry["id"] is not None})


def read_log(table: Path) -> list[OracleCommit]:
    """The commits whose JSON file still exists, in order; empty if there is no table."""
    files = sorted((table / "_delta_log").glob("*.json")) if (table / "_delta_log").is_dir() else []
    return [_commit(int(file.stem), file) for file in files if re.fullmatch(r"\d{20}", file.stem)]


def _commit(version: int, file: Path) -> OracleCommit:
    actions = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})
    operation, metadata = str(info.get("operation", "")), _metadata(info.get("userMetadata"))
    parameters, ours = info.get("operationParameters") or {}, metadata or {}
    restored = str(parameters.get("version"))
    return OracleCommit(
        version,
        operation,
        int(info.get("timestamp", 0)),
        metadata,
        tuple((str(txn["appId"]), int(txn["version"])) for action in actions if (txn := action.get("txn"))),
        any(action.get("add", {}).get("dataChange") for action in actions),
        any(action.get("remove", {}).get("dataChange") for action in actions),
        operation == "RESTORE" or "REPLACE TABLE" in operation or parameters.get("mode") == "Overwrite",
        int(restored) if operation == "RESTORE" and restored.isdigit() else -1,
        str(ours.get("kind", "")),
        (int(ours.get("epoch", -1)), int(ours.get("batch", -1))),
        tuple(plain_topic_id(each[1]) for each in ours.get("sources", ())),
        tuple(OraclePosting.of(why, fields) for why, each in ours.get("postings", {}).items() for fields in each),
    )


def _metadata(text: object) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and value.get("oncelake") == 3 else None
