"""Replay quarantined records without Spark, as a batch of the direct writer: decoded, classified and committed by this process.

The selected records have to fit into memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.batch.conflicts import CONFLICT
from ingest.batch.dedup import POSITION
from ingest.batch.direct import insertion
from ingest.batch.staged import Staged
from ingest.batch.staged_parts import Part, Parts, remove_all
from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.decode.arrow_json import REASON
from ingest.decode.arrow_rule import arrow_rules
from ingest.decode.event_plan import BatchSource, event_plan
from ingest.decode.events import EventPlan, Events
from ingest.decode.headers import HEADERS, texts_of
from ingest.decode.row_hash import row_hashes
from ingest.delta.batch_commit import SEEK, BatchCommit, Replay
from ingest.delta.commit import Commit
from ingest.delta.data_file import StagedFile
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import At, DataFusion, arrow
from ingest.delta.direct_fit import listed
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.log_errors import table_missing
from ingest.delta.put import Operation, nothing_stored
from ingest.kafka.offsets import LANE_BITS, OffsetRange, Partition, of_lane
from ingest.recovery.look_back import LookBack
from ingest.recovery.replay import replay
from ingest.recovery.state_reader import Broker, read_start_state
from ingest.repair.replayed import BY, Replayed
from ingest.repair.selection import Selection
from ingest.runtime import crash_points
from ingest.runtime.files import local_path
from ingest.runtime.places import Places

RECORDS = """\
SELECT key AS __key, value AS __value, headers AS __headers, source AS _source, `partition` AS _partition, `offset` AS _offset,
       kafka_timestamp AS _kafka_timestamp
FROM {quarantine} WHERE """
KAFKA = pa.schema(
    [
        *(("__key", pa.binary()), ("__value", pa.binary()), ("__headers", HEADERS), ("_source", pa.int16()), ("_partition", pa.int32())),
        *(("_offset", pa.int64()), ("_kafka_timestamp", pa.timestamp("us", "UTC"))),
    ]
)


@dataclass(frozen=True)
class Found:
    """The selected records as a batch would classify them. `reasons` counts those that the contract refuses, without conflicts."""

    staged: Staged
    reasons: Counter[str]
    elsewhere: int

    def refused(self) -> dict[str, int]:
        """The refused records by reason, most frequent first."""
        every = self.reasons + Counter({CONFLICT: len(self.staged.conflicts)})
        return dict(sorted(every.items(), key=lambda each: (-each[1], each[0])))

    def ranges(self) -> tuple[OffsetRange, ...]:
        """The span of the accepted records by partition."""
        spans: dict[Partition, list[int]] = {}
        for part in self.staged.rows.parts:
            for of, offset in zip(map(of_lane, part.lanes.tolist()), part.offsets.tolist(), strict=True):
                if (*of, offset) not in self.staged.conflicts:
                    spans.setdefault(of, []).append(offset)
        return tuple(OffsetRange(of[1], min(offsets), max(offsets) + 1, source=of[0]) for of, offsets in sorted(spans.items()))


def tried(contract: Contract, places: Places, broker: Broker, selection: Selection) -> Replayed:
    """What a replay would do, without writing anything. The target need not match the contract yet. Raises InvalidInput TABLE_MISSING."""
    writer = DirectWriter()
    for path in (places.target, places.quarantine):
        if writer.table(path).state is None:
            raise table_missing(places.name, path)
    version = writer.looked_at(places.quarantine).version
    topics = read_start_state(None, places, Logs.of(places), broker).topics
    assert topics is not None, "the broker was asked"
    source = BatchSource(tuple(each.id for each in topics.sources), 0, SEEK, datetime.now(UTC))
    found = _found(writer, contract, places, selection, version, source, topics.states.keys(), "")
    read = found.staged.read()
    return Replayed(read, read - found.staged.failed(), 0, found.refused(), found.elsewhere)


def commit(
    writer: DirectWriter,
    contract: Contract,
    places: Places,
    selection: Selection,
    at_end: BatchCommit,
    look_back: LookBack,
) -> tuple[Commit | None, Replayed]:
    """Commit the accepted records as rows, with the offsets at the table's end, and set those that became rows to `replayed`."""
    source = BatchSource(tuple(each.id for each in at_end.sources), at_end.id.epoch, at_end.id.number, datetime.now(UTC))
    read_now = {number for number, _ in at_end.ends}
    prefix = f"part-{at_end.id.epoch:05}-{at_end.id.number:06}-{at_end.writer[:8]}-"
    found = _found(writer, contract, places, selection, look_back.snapshots.quarantine.version, source, read_now, prefix)
    read = found.staged.read()
    if not (ranges := found.ranges()):
        return None, Replayed(read, 0, 0, found.refused(), found.elsewhere)
    statement = replace(at_end, case=Replay(BY))
    new: list[StagedFile] = []

    def still() -> BatchCommit:
        return replace(statement, snapshots=look_back.again())

    def decide(target: LiveTable) -> tuple[Operation, Sequence[Mapping[str, Any]]]:
        new[:] = found.staged.new_files(target)
        postings = tuple(found.staged.postings(at_end.id, ranges, new, {}, "replay"))
        return insertion(contract, postings), [each.addition() for each in new]

    try:
        made = writer.commit(look_back.target, still, decide)
    except BaseException as error:
        if not new or nothing_stored(error):  # else a commit that names them may have been stored
            remove_all(found.staged.rows.folder, prefix)
        raise
    found.staged.rows.remove(new)
    crash_points.at("replay_target", 0)
    look_back.again()
    own = made.batch_commit
    assert own is not None, "found by its BatchCommit"
    replay(writer, places, own)
    done = [each for each in own.postings if each.why == "replay"]
    inserted = sum(each.target.rows for each in done if each.target is not None)
    duplicate = sum((each.present or 0) + each.duplicate for each in done)
    return made, Replayed(read, inserted, duplicate, found.refused(), found.elsewhere)


def _found(
    writer: DirectWriter,
    contract: Contract,
    places: Places,
    selection: Selection,
    version: int,
    source: BatchSource,
    read_now: Collection[int],
    prefix: str,
) -> Found:
    """The selected records of the sources `read_now`: decoded, copies marked, and compared with the target where the contract says so."""
    found = arrow(DataFusion(), f"{RECORDS}{selection.condition}", quarantine=At(places.quarantine, version))
    batches = ([batch.column(field.name).cast(field.type) for field in KAFKA] for batch in found)
    records = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=KAFKA) for columns in batches], KAFKA)
    here = records.filter(pc.is_in(records["_source"], pa.array(list(read_now), pa.int16())))
    target = writer.looked_at(places.target)
    assert target.state is not None, "the look refuses a table without commits"
    plan = event_plan(contract, source, arrow_rules(contract))
    statistics = tuple(name for name in listed(target.state) if name in plan.schema.names)
    right, wrong, reasons = _decoded(plan, here, () if contract.event_id.kind == "position" else event_id_columns(contract))
    folder = str(local_path(places.target))
    rows = Parts(folder, plan.schema, statistics, plan.partition_by, prefix, [right])
    # Refused records are in the quarantine already: they are counted, never written.
    staged = Staged(event_id_columns(contract), plan.payload, rows, Parts("", pa.schema([]), (), (), prefix, [wrong]))
    staged.mark_copies()
    if contract.conflicts == "table":
        staged.compare(target)
    return Found(staged, reasons, records.num_rows - here.num_rows)


def _decoded(plan: EventPlan, records: pa.Table, event_id: Sequence[str]) -> tuple[Part, Part, Counter[str]]:
    """The events and the refused records, each as one part in memory, and the number of the refused by reason."""
    right, wrong, reasons = [], [], Counter[str]()
    at = records.column_names.index("__headers")
    for batch in records.to_batches():
        texts = batch.set_column(at, "__headers", texts_of(batch.column("__headers")))
        for decoded in Events(plan).decode([texts]):
            fault = decoded.column(REASON).is_valid()
            refused = decoded.filter(fault)
            reasons.update(refused.column(REASON).to_pylist())
            wrong.append(refused)
            right.append(decoded.filter(pc.invert(fault)).select(plan.schema.names))
    nullable = pa.schema([field.with_nullable(True) for field in plan.schema])
    rows = pa.Table.from_batches(right, nullable).cast(plan.schema).combine_chunks()
    hashes = row_hashes(rows[name].combine_chunks() for name in event_id)
    left = pa.Table.from_batches(wrong, plan.output)
    return _part(rows, hashes), _part(left, np.empty(0, np.uint64)), reasons


def _part(rows: pa.Table, hashes: np.ndarray) -> Part:
    sources, partitions, offsets = (rows[name].to_numpy().astype(np.int64) for name in POSITION)
    return Part(sources << LANE_BITS | partitions, offsets, hashes, rows.num_rows, data=rows)
