"""Rows and records that leave the tables for good: the quarantine's retention, and the statements that erasures share with it (I4).

The statement that removes them posts it, in the same commit. So the books balance at every moment, also after a crash.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ingest.delta.batch_commit import BatchCommit, BatchId, Upkeep
from ingest.delta.delta_sql import At, Engine, arrow
from ingest.delta.posting import Why
from ingest.delta.stored_rows import Columns
from ingest.delta.table_writer import TableWriter
from ingest.ledger.ledger_reader import POSITIONED
from ingest.runtime.places import Places

SETTLED = ("replayed", "dropped")
# Epoch, batch, source, partition and offset of rows.
POSITIONS = pa.schema([("e", pa.int32()), ("b", pa.int64()), ("s", pa.int16()), ("p", pa.int32()), ("o", pa.int64())])
NEWEST = f"SELECT epoch, max(batch) AS batch FROM {{ledger}} WHERE {POSITIONED} GROUP BY epoch ORDER BY epoch DESC LIMIT 1"
# With their state: a batch that reads them again meanwhile, beside a maintenance, may have opened them again.
RETIRABLE = pa.schema([*POSITIONS, ("state", pa.string())])
FOUND = "SELECT epoch AS e, batch AS b, source AS s, `partition` AS p, `offset` AS o, state FROM {quarantine} WHERE "
# Rows of so many batches and partitions leave in one statement: a posting takes a hundred bytes of its commit.
KEYS_MAX = 10_000


def retirable(engine: Engine, places: Places, before: datetime, *, open_too: bool = False) -> pa.Table:
    """The records (RETIRABLE) that leave because their state last changed before this time. Raises Unreadable.

    Only records of batches that the ledger has: a batch in progress, or cut off, keeps its records.
    """
    newest = engine.ask(NEWEST, ledger=At(places.ledger))
    if not newest:
        return RETIRABLE.empty_table()
    last = BatchId(newest[0]["epoch"], newest[0]["batch"])
    states = ", ".join(f"'{state}'" for state in (*SETTLED, *(["open"] if open_too else [])))
    committed = f"(epoch < {last.epoch} OR (epoch = {last.epoch} AND batch <= {last.number}))"
    moment = before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = f"state IN ({states}) AND state_changed_at < CAST('{moment}' AS TIMESTAMP) AND {committed}"
    found = [*arrow(engine, FOUND + condition, quarantine=At(places.quarantine))]
    return pa.Table.from_batches(found).cast(RETIRABLE) if found else RETIRABLE.empty_table()


def remove(writer: TableWriter, places: Places, found: pa.Table, path: str, columns: Columns, why: Why, reason: str = "") -> int:
    """Delete the rows at these positions (POSITIONS, and perhaps more columns) if they are still in the `state` that `found` may say, and
    post it; returns how many they were.

    Rows of more than KEYS_MAX batches and partitions leave in several statements.
    """
    ordered = found.sort_by([(name, "ascending") for name in "ebsp"])
    keys = np.stack([ordered[name].to_numpy().astype(np.int64) for name in "ebsp"])
    starts = np.flatnonzero(np.concatenate(([ordered.num_rows > 0], (keys[:, 1:] != keys[:, :-1]).any(axis=0))))[::KEYS_MAX].tolist()
    removed = 0
    for start, end in pairwise([*starts, ordered.num_rows]):
        removed += writer.remove(ordered.slice(start, end - start), path, columns, about(places, reason), why)
    return removed


def about(places: Places, reason: str = "") -> BatchCommit:
    """The BatchCommit of a statement of a maintenance or an erasure."""
    return BatchCommit(Upkeep(reason), places.pipeline, places.table, writer=str(uuid.uuid4()))
