"""Batches of the direct writer against a model, without Spark: any records, limits, faults, re-reads and changes by others (I1 to I7)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ingest.batch import direct
from ingest.runtime.errors import Bug, RunStopped
from tests.unit.batch.batch_model import KINDS, POISON, Event, Model, Position, Shape, record
from tests.unit.batch.local_desk import FILES, MEMORY, MIXED, PARTITIONS, PLACES, ROLLED, SIZES, TOO_MANY_COPIES, LocalDesk, Sizes

pytestmark = pytest.mark.unit

EVENTS = st.builds(
    Event,
    st.integers(0, 4),
    st.sampled_from("ab"),
    st.sampled_from([0, 0, 1, 2, -1, None]),
    st.sampled_from([False] * 9 + [True]),
    st.integers(0, 2),
)
POINTS = ("after_offset_log", "staged", "after_quarantine", "during_target", "after_target", "after_replayed", "after_ledger")
COMMITTED = POINTS[4:]


class Killed(BaseException):
    """The driver dies."""


@dataclass(frozen=True)
class Batch:
    """The topic gets these events, by partition, then a batch reads all that is unread. `killed` is the point at which the driver dies."""

    events: Sequence[tuple[int, Event]]
    sizes: Sizes = MEMORY
    killed: str | None = None


@dataclass(frozen=True)
class Seek:
    """A seek to the earliest offset. From then on the rule wants `n` to be at least `least`."""

    least: int


@dataclass(frozen=True)
class Delete:
    """Somebody deletes the rows of an event id."""

    id: int


@dataclass(frozen=True)
class Compact:
    """Somebody writes the target's files again as fewer ones."""


@dataclass(frozen=True)
class Index:
    """What happens to the index of event ids: it is deleted, kept aside, put back as it was then, damaged, or tidied."""

    what: str
    chance: float = 0.5


Action = Batch | Seek | Delete | Compact | Index
BATCHES = st.builds(Batch, st.lists(st.tuples(st.integers(0, PARTITIONS - 1), EVENTS), max_size=14), st.sampled_from(SIZES))
KILLED = st.builds(replace, BATCHES, killed=st.sampled_from(POINTS))
ACTIONS = st.one_of(
    *(BATCHES, BATCHES, BATCHES, KILLED, st.builds(Seek, st.integers(0, 1)), st.builds(Delete, st.integers(0, 4)), st.just(Compact())),
    st.builds(Index, st.sampled_from(("deleted", "kept", "put back", "bit", "cut", "swapped", "tidied")), st.floats(0, 0.99)),
)
SHAPES = st.builds(Shape, st.sampled_from([*KINDS]), st.booleans(), st.booleans(), st.sampled_from(["batch", "table"]))


@dataclass
class Scene:
    """The tables and the model, after each action equal."""

    shape: Shape
    folder: Path
    topic: dict[Position, Event] = field(default_factory=dict)
    model: Model = field(default_factory=Model)
    # Not if ids had the same hash in a batch: rows are summed up by it.
    summable: bool = True

    def __post_init__(self) -> None:
        self.desk = LocalDesk(self.shape.contract(), self.folder)

    def do(self, action: Action) -> None:
        match action:
            case Batch():
                for partition, event in action.events:
                    self.topic[partition, sum(p == partition for p, _ in self.topic)] = event
                self._batch(action)
            case Seek():
                self.shape = replace(self.shape, least=action.least)
                self.desk.contract = self.shape.contract()
                self.desk.open(again=True)
            case Delete():
                self._delete(action.id)
            case Compact():
                DeltaTable(self.desk.places.target).optimize.compact()
            case Index():
                self._index(action)
        self.compare()

    def _batch(self, batch: Batch) -> None:
        starts, before = self.desk.starts, self.desk.unreferenced()
        self.summable &= batch.sizes.hashes == MEMORY.hashes
        read = [(at, event) for at, event in self.topic.items() if at[1] >= starts[at[0]]]
        tasks = [[record(self.shape, at, event) for at, event in read if event.task == number] for number in range(3)]
        reached: list[str] = []

        def at(point: str, *_: Any) -> None:
            reached.append(point)
            if point == batch.killed:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(direct, "crash_points", SimpleNamespace(at=at))
            with suppress(Killed):
                self.desk.process(tasks, batch.sizes)
        killed = batch.killed in reached
        if not killed or batch.killed in COMMITTED:
            self.model.batch(self.shape, read)
            assert {p: each for p, each in self.desk.outcomes().items() if each[0]} == self.model.outcomes
        if killed:
            self.desk.open()
        assert batch.sizes.attempts > 1 or self.desk.unreferenced() <= before, "a batch leaves no files"

    def _index(self, action: Index) -> None:
        ids, aside = Path(self.desk.places.checkpoint) / "ids", self.folder / "kept"
        segments = sorted(ids.glob("*.ids"))
        one = segments[int(action.chance * len(segments))] if segments else None
        match action.what:
            case "deleted":
                shutil.rmtree(ids, ignore_errors=True)
            case "kept" if ids.exists():
                shutil.copytree(ids, aside, dirs_exist_ok=True)
            case "put back" if aside.exists():
                shutil.rmtree(ids, ignore_errors=True)
                shutil.copytree(aside, ids)
            case "bit" if one is not None:
                data = bytearray(one.read_bytes())
                data[int(action.chance * len(data))] ^= 1 << int(action.chance * 8)
                one.write_bytes(data)
            case "cut" if one is not None:
                os.truncate(one, int(action.chance * one.stat().st_size))
            case "swapped" if one is not None:
                one.rename(ids / ".one")
                segments[0].rename(one) if segments[0] != one else None
                (ids / ".one").rename(segments[0])
            case "tidied":
                self.desk.writer.tidy_ids(self.desk.places.target)

    def _delete(self, id: int) -> None:
        gone = [at for at, event in self.model.rows.items() if event.id == id]
        where = " OR ".join("(_source = {} AND _partition = {} AND _offset = {})".format(*PLACES[p], offset) for p, offset in gone)
        if gone:
            DeltaTable(self.desk.places.target).delete(where)
        for at in gone:
            del self.model.rows[at]

    def compare(self) -> None:
        """The tables hold what the model says, the books balance, and the quarantine has the records as they were sent."""
        if self.summable:
            assert self.desk.findings() == []
        rows = {(row["_partition"], row["_offset"]): (row["shop"], row["n"]) for row in self.desk.rows()}
        assert rows == {at: (event.shop, event.n) for at, event in self.model.rows.items()}
        assert len(rows) == len(self.desk.rows()) == len({self.shape.id_of(event) for event in self.model.rows.values()})
        found = {(each["partition"], each["offset"]): each for each in self.desk.quarantine()}
        assert len(found) == len(self.desk.quarantine())
        assert {at: (each["reason_code"], each["state"]) for at, each in found.items()} == {
            at: (reason, state) for at, (reason, _, state) in self.model.refused.items()
        }
        for at, each in found.items():
            sent = record(self.shape, at, self.topic[at])
            assert (each["value"], each["key"], each["event_id"]) == (sent.value, sent.key, self.shape.id_text(self.topic[at]))
            detail = self.model.refused[at][1]
            assert detail is None or each["reason_detail"] == detail


def run(shape: Shape, *actions: Action) -> Scene:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(shape, Path(folder))
        for action in actions:
            scene.do(action)
        return scene


@settings(max_examples=int(os.environ.get("EXAMPLES", "25")), phases=[Phase.generate], deadline=None)
@given(SHAPES, st.lists(ACTIONS, min_size=1, max_size=5))
def test_whatever_happens_the_tables_hold_what_the_guarantees_say(shape: Shape, actions: list[Action]) -> None:
    """I3, I4, I5, I7: read = added + there + duplicates + quarantined, and the tables hold just these records."""
    run(shape, *actions)


# Copies inside a task, in two tasks and in two partitions, with equal and other payloads, and records that are no event.
COPIES = [
    (1, Event(1, "a", 1)),
    (0, Event(1, "a", 1)),
    (0, Event(1, "a", 2, task=1)),
    (2, Event(1, "a", 1, task=2)),
    (0, Event(2, "a", 0)),
    (0, Event(2, "b", 0)),
    (0, Event(2, "a", 0, task=1)),
    (1, Event(3, "b", None)),
    (1, Event(3, "b", -1)),
    (2, Event(0, "a", 0, poison=True, task=1)),
    (2, Event(3, "b", 1)),
]
SHAPE = Shape()


@pytest.mark.parametrize("conflicts", ["batch", "table"])
@pytest.mark.parametrize("sizes", SIZES, ids=range(len(SIZES)))
def test_of_the_copies_in_a_batch_the_least_position_wins_and_another_payload_is_a_conflict(sizes: Sizes, conflicts: str) -> None:
    """I3, I4"""
    scene = run(Shape(conflicts=conflicts, partitioned=True), Batch(COPIES, sizes))
    assert {event.id: at for at, event in scene.model.rows.items()} == {1: (0, 0), 2: (0, 2), 3: (2, 2)}
    assert sorted(reason for reason, *_ in scene.model.refused.values()) == ["broken_rule"] * 2 + ["conflicting_duplicate"] * 2 + [POISON]


@pytest.mark.parametrize("sizes", [MEMORY, FILES], ids=["memory", "files"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_the_table_holds_is_not_added_again(kind: str, sizes: Sizes) -> None:
    """I3: whatever its type is, before and after another engine has written the files again."""
    some, all = ([(0, Event(n, "a", 0)) for n in range(first, 5)] for first in (2, 0))
    for composite in (False, True):
        run(Shape(kind, composite), Batch(some[:1], sizes), Batch(some, sizes), Compact(), Batch(all, sizes))


@pytest.mark.parametrize("sizes", [MEMORY, FILES], ids=["memory", "files"])
@pytest.mark.parametrize("point", POINTS)
def test_a_batch_whose_driver_dies_is_repeated_without_loss_or_copies(point: str, sizes: Sizes) -> None:
    """I1, I7"""
    scene = run(SHAPE, Batch(COPIES, sizes, killed=point), Batch([], sizes))
    assert scene.model.rows and scene.model.refused


def test_with_conflicts_table_the_payload_of_the_row_decides_about_every_copy() -> None:
    """21: also about one that equals the row, and differs from an earlier copy in the batch."""
    first, later = [(0, Event(1, "a", 1))], [(1, Event(1, "a", 2)), (1, Event(1, "a", 1)), (0, Event(1, "b", 1)), (0, Event(2, "a", 1))]
    for sizes in (MEMORY, FILES, TOO_MANY_COPIES):
        scene = run(Shape(conflicts="table"), Batch(first), Batch(later, sizes))
        assert {at: detail for at, (_, detail, _) in scene.model.refused.items()} == {
            (0, 1): "differs from partition 0 offset 0",
            (1, 0): "differs from partition 0 offset 0",
        }


@pytest.mark.parametrize("conflicts", ["batch", "table"])
def test_records_that_are_rows_stay_rows_when_they_are_read_again_under_a_stricter_rule(conflicts: str) -> None:
    """25: none of them is refused, and no file is left in the quarantine's folder."""
    strict, lax = Shape(conflicts=conflicts, least=1), Shape(conflicts=conflicts)
    scene = run(lax, Batch(COPIES, FILES), Seek(1), Batch([], FILES), Delete(2), Seek(1), Batch([], FILES), Seek(0), Batch([], FILES))
    assert (0, 2) in scene.model.rows and {state for *_, state in scene.model.refused.values()} == {"open"} | {"replayed"}
    assert run(strict, Batch(COPIES), Seek(0), Batch([])).model.rows.keys() >= {(0, 2)}


def test_if_all_refused_records_are_rows_nothing_is_quarantined() -> None:
    scene = run(SHAPE, Batch([(0, Event(n, "a", 0)) for n in range(5)], FILES), Seek(1), Batch([], FILES))
    assert not scene.model.refused and scene.model.outcomes == {0: (5, 0, 5, 0, 0)}


def test_files_of_a_task_that_was_tried_again_are_of_no_commit() -> None:
    sizes = replace(FILES, attempts=2)
    assert run(SHAPE, Batch(COPIES, sizes), Batch(COPIES, sizes)).model.rows


def test_a_batch_that_stops_the_run_leaves_no_files(tmp_path: Path) -> None:
    contract = SHAPE.contract()
    limit = contract.quarantine.model_copy(update={"min_records": 1, "max_share": 0.1})
    desk = LocalDesk(contract.model_copy(update={"quarantine": limit}), tmp_path)
    records = [record(SHAPE, (0, n), Event(n, "a", n - 2)) for n in range(5)]
    with pytest.raises(RunStopped, match="QUARANTINE_LIMIT"):
        desk.process([records], FILES)
    assert not desk.unreferenced() and not desk.rows() and not desk.quarantine()


@pytest.mark.parametrize("sizes", [MEMORY, FILES], ids=["memory", "files"])
def test_a_batch_that_stages_a_record_twice_commits_nothing(sizes: Sizes, tmp_path: Path) -> None:
    """I4: as two tasks that read the same records would."""
    desk = LocalDesk(SHAPE.contract(), tmp_path)
    records = [record(SHAPE, (0, n), Event(n, "a", 0)) for n in range(3)]
    with pytest.raises(Bug, match=r"POSITIONS_WRONG: 1 records of partition 0 were staged twice, and 0 are not in"):
        desk.process([records, records[2:]], sizes)
    assert not desk.rows() and not desk.unreferenced()


def test_a_record_outside_of_the_offset_range_is_not_committed(tmp_path: Path) -> None:
    desk = LocalDesk(SHAPE.contract(), tmp_path)
    desk.process([[record(SHAPE, (0, 0), Event(0, "a", 0))]])
    with pytest.raises(Bug, match=r"0 records of partition 0 were staged twice, and 1 are not in"):
        desk.process([[record(SHAPE, (0, n), Event(n, "a", 0)) for n in range(2)]])
    assert len(desk.rows()) == 1


def test_each_limit_takes_the_way_that_its_name_says(tmp_path: Path) -> None:
    """Else the tests above would test less than they seem to."""
    desk = LocalDesk(SHAPE.contract(), tmp_path)
    records = [record(SHAPE, (0, n), Event(n % 3, "a", 0)) for n in range(6)]
    ways = {}
    for name, sizes in (("memory", MEMORY), ("files", FILES), ("rolled", ROLLED), ("too many", TOO_MANY_COPIES), ("mixed", MIXED)):
        parts = desk.staged([records[:4], records[4:]], sizes).rows.parts
        ways[name] = [
            (part.file is not None, part.data is not None, part.copies is not None, part.rows, len(part.offsets)) for part in parts
        ]
    file, memory = (True, False), (False, True)
    assert ways == {
        "memory": [(*memory, True, 3, 4), (*memory, False, 2, 2)],
        "files": [(*file, True, 3, 4), (*file, False, 2, 2)],
        "rolled": [(*file, False, 2, 2)] * 3,
        "too many": [(*file, False, 4, 4), (*file, False, 2, 2)],
        "mixed": [(*file, True, 3, 4), (*memory, False, 2, 2)],
    }
    poison = [record(SHAPE, (0, n), Event(n, "a", 0, poison=True)) for n in range(5)]
    assert [len(part.offsets) for part in desk.staged([poison], ROLLED).refused.parts] == [2, 2, 1]
    assert [part.data is not None for part in desk.staged([poison], MEMORY).refused.parts] == [True]
    assert [part.file is not None for part in desk.staged([poison], Sizes(small_bytes=1)).refused.parts] == [True]
