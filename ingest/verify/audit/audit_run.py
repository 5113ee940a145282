"""One audit: which columns are compared, the comparison, and the event ids of the faults as text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.kafka.intervals import Offsets
from ingest.kafka.log.log_reader import TopicLog
from ingest.kafka.log.partition_scan import Isolation
from ingest.runtime.errors import InvalidInput
from ingest.verify.audit.audited_table import USUAL, AuditedTable, PositionColumns, id_text
from ingest.verify.audit.by_event_id import by_event_id
from ingest.verify.audit.by_position import by_position
from ingest.verify.audit.findings import Audit
from ingest.verify.audit.reach import Reach
from ingest.verify.audit.topic_ids import RecordId, hashes_of, ids_at, read_ids


@dataclass(frozen=True)
class Compared:
    """What is compared: positions, ids, or both. With both, ids only excuse records whose copy has a row. `usual`: found by its name."""

    positions: PositionColumns | None
    topic_column: str | None
    ids: tuple[str, ...] = ()
    record_id: RecordId | None = None
    usual: bool = False


def compared(
    table: AuditedTable, partition: str | None, offset: str | None, topic: str | None, event_id: str | None, record_id: str | None
) -> Compared:
    """What these options compare. Raises InvalidInput AUDIT_COLUMN, AUDIT_COLUMNS, AUDIT_RECORD_ID."""
    if (partition is None) != (offset is None):
        raise _columns("only one of --partition-column and --offset-column is given.")
    if (event_id is None) != (record_id is None):
        raise _columns("only one of --event-id and --record-id is given.")
    ids = tuple(table.id_column(name.strip()) for name in event_id.split(",")) if event_id else ()
    of_record = RecordId(record_id) if record_id else None
    if of_record is not None and of_record.size != len(ids):
        raise _columns(f"--event-id names {len(ids)} columns, --record-id {of_record.size} parts.")
    topic_column = None if topic is None else table.known(topic, "--topic-column")
    if partition is not None and offset is not None:
        named = PositionColumns(table.known(partition, "--partition-column"), table.known(offset, "--offset-column"), topic_column)
        return Compared(named, topic_column, ids, of_record)
    usual = table.usual_positions() if not ids else None
    if usual is not None:
        usual = replace(usual, topic=topic_column or usual.topic)
        return Compared(usual, usual.topic, usual=True)
    if not ids:
        names = ", ".join(f"{partition}/{offset}" for partition, offset, _ in USUAL)
        raise _columns(f"the table {table.at.path} has no position columns with a usual name ({names}).")
    return Compared(None, topic_column, ids, of_record)


def audit(table: AuditedTable, what: Compared, reader: TopicLog, isolation: Isolation, reach: Reach, named: int | None) -> Audit:
    """Read the table, then the topic, and compare them. The first `named` faults of each kind (None: all) get their event id as text.

    Raises Unreadable, the errors of `scan`, and InvalidInput AUDIT_TOPIC if all rows are of other topics.
    """
    total = table.rows()
    if what.positions is not None:
        held, without = table.positions(what.positions, reader.topic)
        has_row = None
        if what.record_id is not None:
            of_rows, record_id = np.unique(table.ids(what.ids, what.topic_column, reader.topic)[0]), what.record_id

            def has_row(partition: int, offsets: Offsets) -> NDArray[np.bool_]:
                known = ids_at(reader, record_id, partition, offsets)
                there = np.isin(hashes_of(list(known.values()), record_id.size), of_rows)
                return np.isin(offsets, np.fromiter(known, np.int64, len(known))[there])

        found = by_position(reader, held, isolation, reach, has_row)
    else:
        assert what.record_id is not None, "an audit compares positions or ids"
        rows, without = table.ids(what.ids, what.topic_column, reader.topic)
        found = by_event_id(read_ids(reader, what.record_id), rows, without, isolation, reach)
        found = replace(found, found=_with_texts(found.found, table, what, what.record_id, reader, named))
    if total and not found.rows + without:
        raise InvalidInput(
            "AUDIT_TOPIC",
            f"all {total} rows have another topic than {reader.topic} in the column {what.topic_column}.",
            expected="rows of this topic.",
            remedy="correct --topic or --topic-column.",
        )
    return replace(found, rows=found.rows + without, rows_without_key=without, rows_of_other_topics=total - found.rows - without)


def _with_texts(found: pa.Table, table: AuditedTable, what: Compared, record_id: RecordId, reader: TopicLog, named: int | None) -> pa.Table:
    """The faults with `event_id` in place of `hash`: ids of rows from the table, ids of lost records from the topic."""
    hashes, lost = found["hash"].to_numpy(), pc.equal(found["fault"], "lost").to_numpy(zero_copy_only=False)
    wanted = np.ones(hashes.size, bool)
    if named is not None:
        wanted[:] = False
        for fault in pc.unique(found["fault"]).to_pylist():
            wanted[np.flatnonzero(pc.equal(found["fault"], fault).to_numpy(zero_copy_only=False))[:named]] = True
    texts = table.texts(what.ids, what.topic_column, reader.topic, hashes[wanted & ~lost])
    named_ids: list[str | None] = [texts.get(value) if chosen else None for value, chosen in zip(hashes.tolist(), wanted, strict=True)]
    partitions, offsets = (found[name].to_numpy(zero_copy_only=False) for name in ("partition", "offset"))
    for partition in np.unique(partitions[wanted & lost]).tolist():
        of = np.flatnonzero(wanted & lost & (partitions == partition))
        ids = ids_at(reader, record_id, int(partition), offsets[of].astype(np.int64))
        for number, offset in zip(of.tolist(), offsets[of].tolist(), strict=True):
            named_ids[number] = id_text(part for part in ids.get(int(offset), ()) if part is not None)
    place = found.schema.get_field_index("event_id")
    return found.drop_columns(["hash"]).set_column(place, found.schema.field("event_id"), pa.array(named_ids, pa.string()))


def _columns(found: str) -> InvalidInput:
    return InvalidInput(
        "AUDIT_COLUMNS",
        found,
        expected="the columns of each row's position, or the column of its event id and the place of that id in the records.",
        remedy="add --partition-column and --offset-column; or --event-id COLUMN with --record-id '$.field', key or header:NAME.",
    )
