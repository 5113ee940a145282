"""The records of a batch that go to quarantine, as rows of that table: records that are no event, and conflicting copies (I5).

Workers make these rows. They get this module by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from ingest.batch.outputs import QUARANTINE, ROLL_BYTES, Held, in_memory, is_small, positions, written
from ingest.decode.arrow_json import DETAIL, REASON
from ingest.decode.events import repeated
from ingest.decode.headers import headers_of

CONFLICT = "conflicting_duplicate"
EVENT_ID = "__event_id"
# As Spark's to_json escapes them.
LETTERS = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {ord(letter): text for letter, text in LETTERS.items()}


@dataclass(frozen=True)
class Refused:
    """What a worker needs to make rows of the quarantine in `folder`.

    `schema` has the quarantine's columns, `same` those that are equal in all rows, `topics` are the topics' names and ids by number,
    `event_id` names the columns of the event id,
    `statistics` those with statistics, `prefix` begins the names of new files.
    """

    schema: pa.Schema
    folder: str
    prefix: str
    event_id: tuple[str, ...]
    statistics: tuple[str, ...]
    same: tuple[tuple[str, int | str], ...]
    topics: tuple[tuple[str, str], ...]

    def decoded(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of records that are no event, as `Events` returns them."""
        return self._rows(records, records.column(REASON), id_texts(records, self.event_id))

    def again(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output rows of conflicting copies that were read again, with `__detail` and `__event_id`."""
        held = Held()
        for batch in batches:
            if batch.num_rows:
                held.add(self._rows(batch, pa.array([CONFLICT] * batch.num_rows), batch.column(EVENT_ID)))
            if held.bytes > ROLL_BYTES:
                yield self.staged(held.taken(), small=False)
        if held.batches:
            yield self.staged(rows := held.taken(), small=is_small(rows))

    def staged(self, rows: pa.Table, *, small: bool) -> pa.RecordBatch:
        """The output row of these rows."""
        about = positions(rows, "source", "partition", "offset")
        if small:
            return in_memory(QUARANTINE, rows, about)
        return written(QUARANTINE, self.folder, self.prefix, rows, self.statistics, {}, about)

    def _rows(self, records: pa.RecordBatch, reason: pa.Array, event_id: pa.Array) -> pa.RecordBatch:
        names = ("source", "partition", "offset", "kafka_timestamp")
        found = {name: records.column(f"_{name}") for name in names}
        for at, name in enumerate(("topic", "topic_id")):
            found[name] = pa.array([each[at] for each in self.topics], pa.string()).take(found["source"])
        found |= {"key": records.column("__key"), "value": records.column("__value"), "headers": headers_of(records.column("__headers"))}
        found |= {"reason_code": reason, "reason_detail": records.column(DETAIL), "event_id": event_id}
        for name, value in self.same:
            found[name] = repeated(value, self.schema.field(name).type, records.num_rows)
        return pa.RecordBatch.from_arrays([found[field.name].cast(field.type) for field in self.schema], schema=self.schema)


def id_texts(rows: pa.RecordBatch | pa.Table, event_id: Sequence[str]) -> pa.Array:
    """The event id of each row as text, of several columns as a JSON array; NULL if a part of it has no text."""
    columns = [[_text(value) for value in rows[name].to_pylist()] for name in event_id]
    texts = [
        None if None in parts else parts[0] if len(parts) == 1 else f"[{','.join(_quoted(part) for part in parts)}]"
        for parts in zip(*columns, strict=True)
    ]
    return pa.array(texts, pa.string())


def _quoted(text: str) -> str:
    """A text as JSON, as Spark writes it: json.dumps escapes control characters in lower case."""
    return f'"{text.translate(ESCAPES)}"'


def _text(value: Any) -> str | None:
    """A value of an event id as Spark writes it as text; None for NULL, and for bytes that are not UTF-8."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
        case bool():
            return str(value).lower()
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return text.rstrip("0").rstrip(".") if value.microsecond else text
        case _:
            return None if value is None else str(value)
