"""Set quarantined records to `replayed` once a re-read has inserted them as rows (I4). Repeating it is harmless, so a start repeats it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ingest.delta.batch_commit import BatchCommit, Mark, Replay
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, arrow, asked
from ingest.delta.quarantine_rows import REPLAYED
from ingest.delta.stored_rows import QUARANTINE, TARGET, in_ranges
from ingest.delta.table_writer import TableWriter
from ingest.ledger.ledger_reader import Newest
from ingest.runtime.places import Places

POSITIONS = pa.schema([("source", pa.int16()), ("partition", pa.int32()), ("offset", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def unfinished(engine: Engine, places: Places, log: DeltaLog, newest: Newest | None) -> BatchCommit | None:
    """The BatchCommit of the target's newest batch, if quarantined records that it inserted are not `replayed` yet; else None.

    `log` is the target's. Raises Unreadable.
    """
    if newest is None or newest.snapshots is None or newest.version is None:
        return None
    batch_commit = log.commit(newest.version).batch_commit
    return batch_commit if batch_commit is not None and pending(engine, places, batch_commit) else None


def pending(engine: Engine, places: Places, batch_commit: BatchCommit) -> bool:
    """Whether the quarantine contains a record that this batch inserted as a row, and that is not `replayed` yet. Raises Unreadable."""
    if not any(len(each) for each in batch_commit.positions):
        return False
    sql = f"SELECT r.p FROM {_inserted(batch_commit, '_source AS s, _partition AS p, _offset AS o')} LIMIT 1"
    return bool(engine.ask(sql, target=At(places.target), quarantine=At(places.quarantine)))


def replay(writer: TableWriter, places: Places, batch_commit: BatchCommit) -> None:
    """Set the quarantined records that a batch inserted as rows to `replayed`. `batch_commit` is the one of its commit on the target.

    Raises Unreadable.
    """
    positions = asked(places.lake, writer.session, lambda engine: _positions(engine, places, batch_commit))
    if positions.num_rows:
        about, by = (
            replace(batch_commit, case=Mark(), postings=()),
            batch_commit.case.reason if isinstance(batch_commit.case, Replay) else "ingest run",
        )
        writer.mark_replayed(positions, places, about, by)


def _positions(engine: Engine, places: Places, batch_commit: BatchCommit) -> pa.Table:
    """Position and time of the batch's rows whose quarantined record is not `replayed` yet."""
    rows = _inserted(batch_commit, "_source AS s, _partition AS p, _offset AS o, _ingested_at AS at")
    sql = f"SELECT r.s, r.p, r.o, min(r.at) AS at FROM {rows} GROUP BY r.s, r.p, r.o"  # another engine may have copied a row
    batches = list(arrow(engine, sql, target=At(places.target), quarantine=At(places.quarantine)))
    return pa.Table.from_batches(batches).rename_columns(POSITIONS.names).cast(POSITIONS) if batches else POSITIONS.empty_table()


def _inserted(batch_commit: BatchCommit, columns: str) -> str:
    """SQL for these columns of the batch's rows whose quarantined record is not `replayed` yet, as `r`."""
    inside = in_ranges(batch_commit.positions, QUARANTINE)
    records = f"SELECT source AS s, `partition` AS p, `offset` AS o FROM {{quarantine}} WHERE state <> '{REPLAYED}' AND ({inside})"
    of_batch = f"_epoch = {batch_commit.id.epoch} AND _batch = {batch_commit.id.number} AND ({in_ranges(batch_commit.positions, TARGET)})"
    rows = f"SELECT {columns} FROM {{target}} WHERE {of_batch}"
    return f"({rows}) r LEFT SEMI JOIN ({records}) q ON q.s = r.s AND q.p = r.p AND q.o = r.o"
