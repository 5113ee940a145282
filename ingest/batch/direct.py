"""Processes one micro-batch with the direct writer: the workers write the files, this process deduplicates and commits.

Spark's foreachBatch calls `process_direct`, which returns only after the commits of the batch are made. It keeps the promises of
`batch.process`: quarantine before target, one commit with the offsets, each event id once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.batch import dedup, outputs, refused, staging
from ingest.batch.batch import BatchReport, Clock, Table, begin, finish, refuse_poisoned
from ingest.batch.dedup import POSITION, TIME
from ingest.batch.outputs import QUARANTINE, STAGED, TARGET, is_small
from ingest.batch.refused import EVENT_ID, Refused
from ingest.batch.staged import Staged
from ingest.batch.staged_parts import KEPT, Part, Parts, remove_all
from ingest.batch.staging import Stage
from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.decode.arrow_json import DETAIL
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.decoder import for_workers
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import Events
from ingest.delta import data_file, partition, statistics, stored_rows
from ingest.delta.batch_commit import BatchId
from ingest.delta.data_file import StagedFile, refuse_changed
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_fit import listed
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import Posting
from ingest.delta.put import Operation, nothing_stored
from ingest.delta.table_definitions import QUARANTINE_FIELDS
from ingest.kafka.offsets import Partition, Planned, of_lane
from ingest.runtime import crash_points
from ingest.runtime.files import local_path

# Workers get these modules by value, as they get the decoder's.
for _module in (staging, outputs, refused, dedup, data_file, partition, statistics):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]

# Conflicting copies that are to be read again.
WANTED = pa.schema(
    [
        ("_source", pa.int16()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        (TIME, pa.int64()),
        (DETAIL, pa.string()),
        (EVENT_ID, pa.string()),
    ]
)
QUARANTINE_STATISTICS = ("partition", "offset", "epoch", "batch")


def process_direct(records: DataFrame, spark_number: int, table: Table, writer: DirectWriter) -> BatchReport:
    """Write a batch (`records` as Spark's Kafka source delivers them) into quarantine and target, exactly once."""
    clock = Clock()
    number, plan, reread = begin(table, spark_number)  # steps 1 and 2
    batch = _Batch(records, table, number, plan, writer)
    new: list[StagedFile] = []
    try:
        # 3 Stage: one Spark job. Its result describes files that no commit names yet.
        staged = batch.stage()
        staged.refuse_open_books(plan.ranges)
        crash_points.at("staged", number)
        clock.lap("stage")

        # 4 Copies inside the batch, and where the contract or a re-read needs it, rows that the table has.
        staged.mark_copies()
        if table.contract.conflicts == "table":
            staged.compare(writer.looked_at(table.places.target))
        if reread and staged.failed():
            staged.spare(batch.rows_read_before())
        table.still_ours()  # before any commit: the rows must come from this topic, and no other run may be active
        refuse_poisoned(staged.read(), staged.failed(), table.contract, number, plan)
        clock.lap("copies")

        # 5 Quarantine first: the target's commit then proves the quarantine's.
        stored = batch.quarantine(staged, reread=reread)
        crash_points.at("after_quarantine", number)
        clock.lap("quarantine")

        # 6 Target: event ids are compared with the snapshot that the commit names, and again if another commit comes first.
        def decide(target: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]]:
            batch.unnamed.add(batch.target_folder)  # a commit before this look was outrun
            new[:] = staged.new_files(target)
            postings = tuple(staged.postings(BatchId(table.epoch.writer.epoch, number), plan.ranges, new, stored))
            crash_points.at("during_target", number)
            batch.unnamed.discard(batch.target_folder)
            return insertion(table.contract, postings), [each.addition() for each in new]

        with batch.committing(batch.target_folder):
            still = partial(table.batch_commit, number, tuple(table.epoch.unposted))
            commit = writer.commit(table.epoch.look_back.target, still, decide)
    except BaseException:
        batch.remove_unnamed()
        raise
    staged.rows.remove(new)
    clock.lap("target")
    return finish(table, writer, commit, clock, reread=reread)


class _Batch:
    """What the steps of a batch share."""

    def __init__(self, records: DataFrame, table: Table, number: int, plan: Planned, writer: DirectWriter) -> None:
        self._records, self._table, self._number, self._plan, self._writer = records, table, number, plan, writer
        epoch = table.epoch.writer
        self._source = BatchSource(tuple(each.id for each in epoch.sources), epoch.epoch, number, plan.planned_at)
        self.prefix = f"part-{epoch.epoch:05}-{number:06}-{epoch.id[:8]}-"
        self.target_folder, self.quarantine_folder = (str(local_path(path)) for path in (table.places.target, table.places.quarantine))
        # The folders in which surely no commit names a file of this batch.
        self.unnamed = {self.target_folder, self.quarantine_folder}

    @contextmanager
    def committing(self, folder: str) -> Iterator[None]:
        """If nothing was stored for sure, no commit names the files in `folder`."""
        try:
            yield
        except BaseException as error:
            if nothing_stored(error):
                self.unnamed.add(folder)
            raise

    def remove_unnamed(self) -> None:
        """Delete the files of a failed batch, except those that a commit may name: VACUUM removes them if none does."""
        for folder in self.unnamed:
            remove_all(folder, self.prefix)

    def stage(self) -> Staged:
        """Decode the records and write those that are events into files."""
        contract, target = self._table.contract, self._writer.table(self._table.places.target)
        assert target.state is not None, "the start created the table"
        events = event_plan(contract, self._source, arrow_rules(contract))
        # Somebody may have unset it: then no column has statistics, and every file is opened.
        with_statistics = tuple(name for name in listed(target.state) if name in events.schema.names)
        event_id = event_id_columns(contract)
        # No two records have the same position.
        hashed = () if contract.event_id.kind == "position" else event_id
        quarantined = self._refused()
        stage = Stage(events, self.target_folder, self.prefix, hashed, with_statistics, contract.conflicts == "table", quarantined)

        def attempt(records: DataFrame) -> dict[str, list[Part]]:
            return self._run(for_workers(records), stage.rows)

        try:
            found = attempt(self._records)
        except Exception as error:
            if self._table.source is None:
                raise
            parts, self._records, unreadable = self._table.source.in_halves(self._records, self._plan.ranges, attempt, error)
            if unreadable.num_rows:
                rows = pa.Table.from_batches([quarantined.decoded(Events(events).unwritable(unreadable))])
                output = quarantined.staged(rows, small=is_small(rows))
                parts.append({TARGET: [], QUARANTINE: [Part.of(row) for row in output.to_pylist()]})
            found = {table: [part for each in parts for part in each[table]] for table in (TARGET, QUARANTINE)}
        rows = Parts(self.target_folder, events.schema, with_statistics, events.partition_by, self.prefix, found[TARGET])
        wrong = Parts(self.quarantine_folder, quarantined.schema, QUARANTINE_STATISTICS, (), self.prefix, found[QUARANTINE])
        return Staged(event_id, events.payload, rows, wrong)

    def rows_read_before(self) -> dict[Partition, np.ndarray]:
        """The offsets of the batch that are rows of the target already."""
        where = stored_rows.in_ranges(self._plan.ranges, stored_rows.TARGET)
        target = self._writer.looked_at(self._table.places.target)
        return stored_rows.positions(DataFusion(), At(target.path, target.version), stored_rows.TARGET, where)

    def quarantine(self, staged: Staged, *, reread: bool) -> dict[Partition, np.ndarray]:
        """Commit the records for quarantine; returns the offsets that the quarantine did not contain before."""
        parts, log = staged.refused, self._table.epoch.look_back.quarantine
        if not staged.failed():
            parts.remove()  # all of them are rows already
            return {}
        parts = replace(parts, parts=[*parts.parts, *self._conflicting(staged)])
        still = partial(self._table.batch_commit, self._number)
        stored = {of: offsets[outcome == KEPT] for of, (offsets, outcome) in parts.outcomes().items()}
        if reread:
            rows = pa.concat_tables([part.columns(parts.folder, parts.schema).filter(pa.array(part.kept)) for part in parts.parts])
            commit = self._writer.merge_quarantine(log, still, rows, reopen=True)
            where = f"epoch = {self._source.epoch} AND batch = {self._number}"
            stored = stored_rows.positions(DataFusion(), At(log.table, commit.version), stored_rows.QUARANTINE, where)
            parts.remove()
        else:
            new = parts.files()
            metrics = {"numFiles": len(new), "numOutputRows": sum(map(len, stored.values()))}
            operation = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"}, metrics)

            def decide(_: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]]:
                self.unnamed.add(self.quarantine_folder)  # a commit before this look was outrun
                refuse_changed(parts.folder, new)
                self.unnamed.discard(self.quarantine_folder)
                return operation, [each.addition() for each in new]

            with self.committing(self.quarantine_folder):
                self._writer.commit(log, still, decide)
            parts.remove(new)
        self._table.epoch.look_back.again()
        return stored

    def _conflicting(self, staged: Staged) -> list[Part]:
        """The conflicting copies with their bytes, which a second read of their positions brings."""
        if not staged.conflicts:
            return []
        columns = zip(*((*at, each.kafka_timestamp, each.detail, each.event_id) for at, each in staged.conflicts.items()), strict=True)
        wanted = pa.Table.from_arrays(
            [pa.array(each, kind) for each, kind in zip(columns, (f.type for f in WANTED), strict=True)], WANTED.names
        )
        found: list[Part] = self._run(self._read_again(wanted), self._refused().again)[QUARANTINE]
        read = {(*of_lane(at), offset) for part in found for at, offset in zip(part.lanes.tolist(), part.offsets.tolist(), strict=True)}
        # Compaction may have removed a record meanwhile. The conflict was found all the same, so it is kept without its bytes.
        gone = pa.array([position not in read for position in staged.conflicts])
        if gone.true_count:
            left = wanted.filter(gone)
            left = left.set_column(WANTED.get_field_index(TIME), TIME, left[TIME].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
            for name, kind in {"__key": pa.binary(), "__value": pa.binary(), "__headers": pa.string()}.items():
                left = left.append_column(name, pa.nulls(len(left), kind))
            for output in self._refused().again(left.combine_chunks().to_batches()):
                found += [Part.of(row) for row in output.to_pylist()]
        return found

    def _read_again(self, wanted: pa.Table) -> DataFrame:
        """The records at these positions (WANTED), with the columns that `wanted` adds."""
        frame = F.broadcast(self._records.sparkSession.createDataFrame(wanted)).withColumnRenamed(TIME, "__time")
        # With the time: the topic may be recreated meanwhile, with another record at this offset.
        same = F.col(TIME).eqNullSafe(F.timestamp_micros("__time"))
        return for_workers(self._records).join(frame, list(POSITION)).where(same).drop("__time")

    def _refused(self) -> Refused:
        writer, plan = self._table.epoch.writer, self._plan
        same: dict[str, int | str] = {
            "contract_hash": writer.contract_hash,
            "epoch": writer.epoch,
            "batch": self._number,
            "state": "open",
            "state_by": "ingest run",
        }
        same["state_changed_at"] = round(plan.planned_at.timestamp() * 1_000_000)
        schema = to_arrow_schema(T.StructType(list(QUARANTINE_FIELDS)), timezone="UTC")
        ids = event_id_columns(self._table.contract)
        topics = tuple((each.name, each.id) for each in writer.sources)
        return Refused(schema, self.quarantine_folder, self.prefix, ids, QUARANTINE_STATISTICS, tuple(same.items()), topics)

    def _run(self, frame: DataFrame, work: Any) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {TARGET: [], QUARANTINE: []}
        for row in frame.mapInArrow(work, STAGED).toArrow().to_pylist():
            found[row["table"]].append(Part.of(row))
        return found


def insertion(contract: Contract, postings: Sequence[Posting]) -> Operation:
    """What DESCRIBE HISTORY shows: a MERGE on the event id that only inserts. Its predicate has no values of rows."""
    condition = " AND ".join(f"(t.{name} = s.{name})" for name in event_id_columns(contract))
    inserts = json.dumps([{"actionType": "insert"}])
    parameters = {"predicate": json.dumps([condition]), "matchedPredicates": "[]", "notMatchedPredicates": inserts}
    inserted = sum(each.target.rows for each in postings if each.target is not None)
    metrics = {"numSourceRows": inserted + sum(each.present or 0 for each in postings), "numTargetRowsInserted": inserted}
    metrics |= {"numTargetRowsUpdated": 0, "numTargetRowsDeleted": 0}
    return Operation("MERGE", {**parameters, "notMatchedBySourcePredicates": "[]"}, metrics, tuple(postings))
