"""The books of a batch: each record that was read is new, present, a duplicate or quarantined, and the sets say so, not numbers (I4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ingest.batch.staged import Staged
from ingest.batch.staged_parts import DUPLICATE, KEPT, PRESENT, Part, Parts
from ingest.delta.batch_commit import BatchId
from ingest.delta.data_file import StagedFile
from ingest.delta.posting import NOTHING, Key, Posting, Sums, by_key
from ingest.delta.row_sums import sums_of
from ingest.kafka.offsets import OffsetRange
from ingest.runtime.errors import Bug
from tests.unit.batch.batch_model import Event, Shape, record
from tests.unit.batch.local_desk import FILES, MEMORY, MIXED, LocalDesk, Sizes

pytestmark = pytest.mark.unit

SHAPE, RANGES, AT = Shape(), (OffsetRange(0, 0, 10), OffsetRange(1, 0, 2)), BatchId(1, 3)
BY_SIZE = pytest.mark.parametrize("sizes", [MEMORY, FILES, MIXED], ids=["memory", "files", "mixed"])


def staged(folder: Path, sizes: Sizes = MEMORY) -> tuple[LocalDesk, Staged]:
    """The table has id 0. Offset 0 of partition 0 has it too, 1 and 2 are new, 3 equals 1, 4 differs from 1, and 5 breaks the rule.

    Partition 1 has one more new event.
    """
    desk = LocalDesk(SHAPE.contract(), folder)
    desk.process([[record(SHAPE, (2, 0), Event(0, "a", 0))]])
    events = [Event(0, "a", 0), Event(1, "a", 0), Event(2, "a", 0), Event(1, "a", 0), Event(1, "a", 1), Event(3, "a", -1)]
    records = [record(SHAPE, (0, offset), event) for offset, event in enumerate(events)] + [record(SHAPE, (1, 1), Event(4, "a", 0))]
    found = desk.staged([records], sizes)
    found.mark_copies()
    return desk, found


def looked(desk: LocalDesk, found: Staged) -> list[StagedFile]:
    return found.new_files(desk.writer.looked_at(desk.places.target))


def postings(found: Staged, new: Sequence[StagedFile], stored: Sequence[int] = (4, 5), **about: object) -> list[Posting]:
    return list(found.postings(AT, RANGES, new, {(0, 0): np.array(stored, np.int64)}, **about))  # type: ignore[arg-type]


def sums(partition: int, offsets: Sequence[int], ids: Sequence[int] | None = None) -> Sums:
    columns = [np.full(len(offsets), each, np.int64) for each in (1, 3, 0, partition)] + [np.array(offsets, np.int64)]
    arrays = [pa.array(each) for each in (*columns, *([] if ids is None else [np.array(ids, np.int64)]))]
    return by_key(sums_of([pa.RecordBatch.from_arrays(arrays, [str(at) for at in range(len(arrays))])]))[Key(1, 3, 0, partition)]


@BY_SIZE
def test_each_record_is_in_one_place_and_rows_are_summed_with_their_event_ids(tmp_path: Path, sizes: Sizes) -> None:
    desk, found = staged(tmp_path, sizes)
    first, second = postings(found, looked(desk, found))
    assert first == Posting(Key(1, 3, 0, 0), "batch", RANGES[0], 6, sums(0, [1, 2], [1, 2]), sums(0, [4, 5]), 1, 1)
    assert second == Posting(Key(1, 3, 0, 1), "batch", RANGES[1], 1, sums(1, [1], [4]))
    again = [*postings(found, looked(desk, found))]
    assert again == [first, second], "the same snapshot gives the same books"


@BY_SIZE
def test_records_that_the_quarantine_has_already_are_present(tmp_path: Path, sizes: Sizes) -> None:
    """They were read again, and stay what they are."""
    desk, found = staged(tmp_path, sizes)
    (first, _) = postings(found, looked(desk, found), stored=[5])
    assert (first.present, first.duplicate, first.quarantine) == (2, 1, sums(0, [5]))


def test_a_replay_reads_only_what_is_refused_no_more(tmp_path: Path) -> None:
    desk, found = staged(tmp_path)
    (first, _) = postings(found, looked(desk, found), stored=[], why="replay")
    assert (first.read, first.inserted, first.present, first.duplicate, first.quarantine) == (4, 2, 1, 1, NOTHING)


def _part_of(found: Staged, offset: int) -> tuple[Part, int]:
    part = next(part for part in found.rows.parts if offset in part.offsets[part.lanes == 0])
    return part, int(np.flatnonzero((part.lanes == 0) & (part.offsets == offset))[0])


def _outcome(offset: int, outcome: int) -> Callable[[Staged], None]:
    def broken(found: Staged) -> None:
        part, at = _part_of(found, offset)
        part.outcome[at] = outcome

    return broken


def _hidden(found: Staged) -> None:
    """Offset 2 takes the place of offset 1: the numbers are right."""
    part, at = _part_of(found, 2)
    part.offsets = np.array(part.offsets)
    part.offsets[at] = 1


BROKEN: dict[str, tuple[Callable[[Staged], None], Sequence[int]]] = {
    "a record that is stored and counted as a duplicate": (_outcome(4, DUPLICATE), [4, 5]),
    "a record that is stored and a row": (_outcome(4, KEPT), [4, 5]),
    "a record that is stored and present": (_outcome(4, PRESENT), [4, 5]),
    "a record is nowhere, and the quarantine has one that nobody read, so that the numbers are right": (_outcome(3, 7), [4, 5, 9]),
    "the quarantine has a record that nobody read": (lambda _: None, [4, 5, 9]),
    "the quarantine has a record twice": (lambda _: None, [4, 5, 5]),
    "two rows at one position, and none at another": (_hidden, [4, 5]),
}


@BY_SIZE
@pytest.mark.parametrize("case", BROKEN)
def test_a_record_that_is_nowhere_or_in_two_places_stops_the_batch(tmp_path: Path, case: str, sizes: Sizes) -> None:
    """I4: before its commit to the target."""
    desk, found = staged(tmp_path, sizes)
    change, stored = BROKEN[case]
    change(found)
    with pytest.raises(Bug, match="BOOKS_OPEN") as stopped:
        postings(found, looked(desk, found), stored)
    assert stopped.value.exit_code == 70


def test_files_with_another_number_of_rows_stop_the_batch(tmp_path: Path) -> None:
    desk, found = staged(tmp_path, FILES)
    new = looked(desk, found)
    for wrong in (new[:-1], [*new, new[0]], [replace(new[0], rows=new[0].rows + 1), *new[1:]]):
        with pytest.raises(Bug, match="BOOKS_OPEN: the new files have"):
            postings(found, wrong)


def test_an_outcome_that_changes_after_the_look_stops_the_batch(tmp_path: Path) -> None:
    """The rows of the commit would not be those of its books."""
    desk, found = staged(tmp_path)
    new = looked(desk, found)
    _outcome(1, DUPLICATE)(found)
    with pytest.raises(Bug, match="BOOKS_OPEN"):
        postings(found, new)


def test_a_record_outside_of_the_ranges_stops_the_batch(tmp_path: Path) -> None:
    _, found = staged(tmp_path)
    found.refuse_open_books(RANGES)
    for ranges in ((RANGES[0],), (replace(RANGES[0], end=5), RANGES[1])):
        with pytest.raises(Bug, match="POSITIONS_WRONG"):
            found.refuse_open_books(ranges)


def test_the_books_of_hundreds_of_partitions_take_a_moment(tmp_path: Path) -> None:
    """Each partition has a part of its own: looking into each part for each partition took seconds a batch."""
    number = 300
    parts = [
        Part(np.full(9, at, np.int64), np.arange(9), np.arange(9, dtype=np.uint64), 9, data=pa.table({"id": [0] * 9}))
        for at in range(number)
    ]
    rows, refused = (Parts(str(tmp_path), pa.schema([]), (), (), "", each) for each in (parts, []))
    found, new = Staged(("id",), (), rows, refused), StagedFile("a", 1, 9 * number, "{}", {})
    started = time.process_time()
    posted = [*found.postings(AT, [OffsetRange(at, 0, 9) for at in range(number)], [new], {})]
    assert time.process_time() - started < 2
    assert [each.inserted for each in posted] == [9] * number


def test_an_empty_range_is_posted_too(tmp_path: Path) -> None:
    """I4: a range with only transaction markers is a gap, not a hole."""
    desk = LocalDesk(SHAPE.contract(), tmp_path)
    found = desk.staged([[]])
    (posting,) = found.postings(AT, (OffsetRange(0, 4, 6),), looked(desk, found), {})
    assert posting == Posting(Key(1, 3, 0, 0), "batch", OffsetRange(0, 4, 6)) and posting.gap == 2


def test_a_batch_with_broken_books_commits_nothing_to_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = LocalDesk(SHAPE.contract(), tmp_path)
    real = Staged.new_files

    def broken(self: Staged, target: object) -> list[StagedFile]:
        return [*real(self, target), *real(self, target)]  # type: ignore[arg-type]

    monkeypatch.setattr(Staged, "new_files", broken)
    with pytest.raises(Bug, match="BOOKS_OPEN"):
        desk.process([[record(SHAPE, (0, 0), Event(1, "a", 0))]])
    assert not desk.rows() and not desk.unreferenced()
