"""Copies in a batch against rows of the table (`conflicts: table`), and records that are rows already (I3)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from ingest.batch.direct import _Batch
from ingest.batch.staged_parts import KEPT
from ingest.decode.payload import payload_hashes
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.data_file import write_file
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Operation
from ingest.delta.table_rows import schema_of
from tests.unit.batch.batch_model import Event, Shape, record
from tests.unit.batch.local_desk import FILES, MEMORY, TOO_MANY_COPIES, Frame, LocalDesk, Sizes, record_batch

pytestmark = pytest.mark.unit

SHAPE = Shape(conflicts="table")


@dataclass(frozen=True)
class Row:
    """A row of the table: id, payload, offset in partition 0, its topic's number, and whether it has a hash (an old row has none)."""

    id: int
    n: int
    offset: int
    source: int
    hashed: bool


ROWS = st.builds(
    Row, st.integers(0, 2), st.integers(0, 1), st.integers(0, 9), st.sampled_from([0, 0, 1]), st.sampled_from([True, True, False])
)


def inserted(desk: LocalDesk, files: list[list[Row]]) -> LiveTable:
    """The table with files of these rows, as another writer may have made them: an id may occur twice."""

    def decide(table: LiveTable) -> Any:
        found = []
        for rows in files:
            own = {"_epoch": 1, "_partition": 0, "_ingested_at": 0, "_batch": 5, "shop": "a"}
            records = [{**own, "id": row.id, "n": row.n, "_offset": row.offset, "_source": row.source} for row in rows]
            whole = pa.Table.from_pylist(records, schema_of(table))
            hashes = payload_hashes(((name, whole[name].combine_chunks()) for name in ("id", "shop", "n")), len(rows)).view(np.int64)
            at = whole.column_names.index("_payload_hash")
            whole = whole.set_column(at, schema_of(table).field(at), pa.array(hashes, mask=np.array([not row.hashed for row in rows])))
            found.append(write_file(table.path, whole, ("id",)).addition())
        return Operation("WRITE", {}, {}), found

    if files:
        DirectWriter().unfenced(desk.places.target, BatchCommit(Upkeep(), "t", "events"), decide)
    return desk.writer.looked_at(desk.places.target)


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate], deadline=None)
@example([Row(1, 1, 0, 0, True), Row(2, 1, 1, 1, True)], [Event(1, "a", 0), Event(2, "a", 0)], MEMORY, 1)
@given(
    st.lists(ROWS, max_size=6, unique_by=lambda row: (row.source, row.offset)),
    st.lists(
        st.builds(Event, st.integers(0, 2), st.just("a"), st.integers(0, 1), st.just(False), st.integers(0, 1)), min_size=1, max_size=8
    ),
    st.sampled_from([MEMORY, FILES, TOO_MANY_COPIES]),
    st.integers(1, 3),
)
def test_the_first_row_with_a_hash_decides_about_every_copy_of_its_id(rows: list[Row], events: list[Event], sizes: Sizes, cut: int) -> None:
    """Of this topic, a row read again is itself, whatever its payload is now. Another topic's row at the position is another record."""
    with tempfile.TemporaryDirectory() as folder:
        desk = LocalDesk(SHAPE.contract(), Path(folder))
        tasks = [[record(SHAPE, (0, at), event) for at, event in enumerate(events) if event.task == task] for task in range(2)]
        staged = desk.staged(tasks, sizes)
        staged.mark_copies()
        staged.compare(inserted(desk, [part for part in (rows[:cut], rows[cut:]) if part]))

        lost: set[int] = set()
        conflicts: dict[int, tuple[str, int]] = {}
        first: dict[int, tuple[int, int]] = {}
        for at, event in enumerate(events):
            there = (row for row in rows if row.id == event.id and row.hashed)
            row = min(there, key=lambda row: (row.source, row.offset), default=None)
            winner = first.setdefault(event.id, (at, event.n or 0))
            if row is not None:
                lost.add(at)
                if row.n != event.n and not (row.offset == at and row.source == 0):
                    conflicts[at] = ("1/0" if row.source else "0", row.offset)
            elif winner[0] != at:
                lost.add(at)
                if winner[1] != event.n:
                    conflicts[at] = ("0", winner[0])
        assert {offset for part in staged.rows.parts for offset in part.offsets[part.outcome != KEPT].tolist()} == lost
        found = {offset: (each.detail, each.event_id) for (_, _, offset), each in staged.conflicts.items()}
        ids = {at: str(event.id) for at, event in enumerate(events)}
        assert found == {at: (f"differs from partition {of} offset {other}", ids[at]) for at, (of, other) in conflicts.items()}


@settings(max_examples=25, phases=[Phase.generate], deadline=None)
@given(
    st.lists(st.builds(Event, st.integers(0, 1), st.just("a"), st.integers(-1, 1)), min_size=1, max_size=8),
    st.sets(st.integers(0, 9)),
    st.sampled_from([MEMORY, FILES]),
)
def test_refused_and_conflicting_records_that_are_rows_are_spared(events: list[Event], rows: set[int], sizes: Sizes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        staged = LocalDesk(SHAPE.contract(), Path(folder)).staged(
            [[record(SHAPE, (0, at), event) for at, event in enumerate(events)]], sizes
        )
        staged.mark_copies()
        wrong = {at for at, event in enumerate(events) if event.n == -1} | {offset for *_, offset in staged.conflicts}
        others = {offset for part in staged.rows.parts for offset in part.offsets[part.outcome != KEPT].tolist()}
        staged.spare({(0, 0): np.array(sorted(rows), np.int64), (0, 1): np.arange(10), (1, 0): np.arange(10)})
        left = {offset for part in staged.refused.parts for offset in part.offsets[part.outcome == KEPT].tolist()} | {
            at for *_, at in staged.conflicts
        }
        assert left == wrong - rows and staged.failed() == len(left)
        assert {offset for part in staged.rows.parts for offset in part.offsets[part.outcome != KEPT].tolist()} == others, (
            "spared copies are no rows"
        )


@pytest.mark.parametrize("sizes", [MEMORY, FILES], ids=["memory", "files"])
def test_a_conflict_whose_record_is_gone_at_the_second_read_is_kept_without_its_bytes(
    sizes: Sizes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: compaction removes the second of two conflicting copies after the first read."""
    desk, conflicting = LocalDesk(SHAPE.contract(), tmp_path), _Batch._conflicting
    records = [record(SHAPE, (0, at), Event(1, "a", at)) for at in range(3)]

    def after_compaction(batch: Any, staged: Any) -> Any:
        batch._records = Frame([[record_batch([records[0], records[2]])]])
        return conflicting(batch, staged)

    monkeypatch.setattr(_Batch, "_conflicting", after_compaction)
    report = desk.process([records], sizes)
    assert (report.inserted, report.quarantined) == (1, 2)
    found = [(each["offset"], each["value"], each["key"], each["event_id"], each["reason_detail"]) for each in desk.quarantine()]
    differs = "differs from partition 0 offset 0"
    assert found == [(1, None, None, "1", differs), (2, records[2].value, records[2].key, "1", differs)]
    assert len({each["kafka_timestamp"] for each in desk.quarantine()}) == 1
