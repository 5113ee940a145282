"""The event ids in a topic's records, with their positions, read once at the level of record batches: aborted records have ids, too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.decode.row_hash import Hashes, row_hashes
from ingest.kafka.intervals import Offsets
from ingest.kafka.log.log_reader import TopicLog, records_at, stretches
from ingest.kafka.log.partition_scan import Kind
from ingest.kafka.log.record_batch import Record
from ingest.runtime.errors import InvalidInput

KINDS = tuple(Kind)
RECORDS = (Kind.COMMITTED, Kind.ABORTED, Kind.UNSTABLE)
CHUNK = 100_000
# If none of so many records has an id, the ids are elsewhere.
NO_ID_AFTER = 20_000
# Confluent's serializers put a zero byte and the number of a schema before the JSON.
FRAMED, FRAME_BYTES = b"\0", 5
LENIENT = json.JSONDecoder(strict=False)

Id = tuple[bytes | None, ...]


class RecordId:
    """Finds the event id in a record: `$.field` or `$.outer.field` of a JSON value, `key`, or `header:NAME`; several parts with commas.

    Raises InvalidInput AUDIT_RECORD_ID for another text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(map(_part, text.split(",")))
        tops = dict.fromkeys(path[0] for kind, path in self._parts if kind == "json")
        self._places = {top: f"f{number}" for number, top in enumerate(tops)}
        fields: list[Any] = [(name, Any, None) for name in self._places.values()]
        # Only these fields become Python objects, which is several times faster than the whole value.
        shape = msgspec.defstruct("Fields", fields, rename={name: top for top, name in self._places.items()})
        self._decoder = msgspec.json.Decoder(shape) if tops else None

    @property
    def size(self) -> int:
        """The number of parts."""
        return len(self._parts)

    def of(self, record: Record) -> Id:
        """The parts of the record's id as bytes; None for a part that it lacks, or that is neither text nor a whole number."""
        document = None if self._decoder is None or record.value is None else self._document(self._decoder, record.value)
        return tuple(self._found(record, document, kind, path) for kind, path in self._parts)

    def _document(self, decoder: msgspec.json.Decoder[Any], value: bytes) -> object:
        """The fields of the value that the id needs; None if it is no JSON."""
        text = value[FRAME_BYTES:] if value[:1] == FRAMED else value
        try:
            shaped = decoder.decode(text)
            return {top: getattr(shaped, name) for top, name in self._places.items()}
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        try:  # a writer may read what is no strict JSON: NaN, or text after the object
            return LENIENT.raw_decode(text.decode(errors="replace").lstrip())[0]
        except (ValueError, RecursionError):
            return None

    def _found(self, record: Record, document: object, kind: str, path: Sequence[str]) -> bytes | None:
        if kind == "key":
            return record.key
        if kind == "header":
            return next((value for name, value in reversed(record.headers) if name == path[0]), None)
        found = document
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, str):
            # An escape may be half of a character. It has no UTF-8, but its own three bytes, which no row's text can have.
            return found.encode(errors="surrogatepass")
        return str(found).encode() if isinstance(found, int) and not isinstance(found, bool) else None


def _part(text: str) -> tuple[str, tuple[str, ...]]:
    word = text.strip()
    names = tuple(word[2:].split("."))
    if word.startswith("$.") and all(names) and not any(set(name) & set("[]*'\"") for name in names):
        return "json", names
    if word == "key":
        return "key", ()
    if word.startswith("header:") and len(word) > len("header:"):
        return "header", (word[len("header:") :],)
    raise InvalidInput(
        "AUDIT_RECORD_ID",
        f"--record-id {text!r}.",
        expected="$.field or $.outer.field of a JSON value, key, or header:NAME; for an id of several columns all parts, with commas.",
        remedy="correct it. Avro and Protobuf are not read: audit such a table by position (--partition-column, --offset-column).",
    )


@dataclass(frozen=True)
class TopicIds:
    """The records that have an id, ordered by partition and offset, in four arrays of one shape (`kinds`: index into KINDS).

    `kinds_of` counts all offsets by kind, `without` the records without an id, `valued` those of them that have a value.
    """

    hashes: Hashes
    partitions: NDArray[np.int32]
    offsets: Offsets
    kinds: NDArray[np.int8]
    kinds_of: Counter[Kind]
    without: Counter[Kind]
    valued: Counter[Kind]


def read_ids(reader: TopicLog, record_id: RecordId) -> TopicIds:
    """Read the whole topic, up to its end at the time of the call; ten million ids take 200 MB (sorted: 1 GB).

    Raises the errors of `stretches`, and InvalidInput AUDIT_NO_IDS if no record has an id.
    """
    parts: list[tuple[Hashes, NDArray[np.int32], Offsets, NDArray[np.int8]]] = []
    kinds_of: Counter[Kind] = Counter()
    without: Counter[Kind] = Counter()
    valued: Counter[Kind] = Counter()
    ids: list[Id] = []
    places: list[tuple[int, int, int]] = []

    def put() -> None:
        if not ids:
            return
        at = np.array(places, np.int64)
        parts.append((hashes_of(ids, record_id.size), at[:, 0].astype(np.int32), at[:, 1].copy(), at[:, 2].astype(np.int8)))
        ids.clear()
        places.clear()

    for partition in reader.partitions:
        for stretch in stretches(reader, partition, 0, reader.bounds(partition).high_watermark):
            kinds_of[stretch.kind] += stretch.end - stretch.start
            if stretch.kind not in RECORDS or stretch.batch is None:
                continue
            number, records = KINDS.index(stretch.kind), 0
            for record in stretch.batch.records():
                if not stretch.start <= record.offset < stretch.end:
                    continue
                records += 1
                found = record_id.of(record)
                if None in found:
                    without[stretch.kind] += 1
                    valued[stretch.kind] += record.value is not None
                else:
                    ids.append(found)
                    places.append((partition, record.offset, number))
            holes = stretch.end - stretch.start - records
            kinds_of[stretch.kind] -= holes
            kinds_of[Kind.HOLE] += holes
            if without.total() > NO_ID_AFTER and not ids and not parts:
                raise _no_ids(reader.topic, record_id)
            if len(ids) >= CHUNK:
                put()
    put()
    if without and not parts:
        raise _no_ids(reader.topic, record_id)
    none = (np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int8))
    hashes, partitions, offsets, kinds = map(np.concatenate, zip(*(parts or [none]), strict=True))
    return TopicIds(hashes, partitions, offsets, kinds, kinds_of, without, valued)


def hashes_of(ids: Sequence[Id], size: int) -> Hashes:
    """The hash of each id, the same as that of a row with this id (AuditedTable.ids)."""
    return row_hashes([pa.array([each[number] for each in ids], pa.large_binary()) for number in range(size)])


def ids_at(reader: TopicLog, record_id: RecordId, partition: int, offsets: Offsets) -> dict[int, Id]:
    """The ids of the records at these offsets, by offset; records without an id are left out."""
    found = ((record.offset, record_id.of(record)) for record in records_at(reader, partition, offsets))
    return {offset: id for offset, id in found if None not in id}


def _no_ids(topic: str, record_id: RecordId) -> InvalidInput:
    return InvalidInput(
        "AUDIT_NO_IDS",
        f"no record of {topic} has an event id at {record_id.text}.",
        expected="the place of the event id in the records: a field of a JSON value, key, or header:NAME.",
        remedy="correct --record-id; Avro and Protobuf are not read, so audit such a table by position.",
    )
