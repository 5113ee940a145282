"""What a batch asks the index of event ids, and what it reads: each file once, and none that rising ids exclude (I3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.batch import probe as probe_module
from ingest.batch import staged as staged_module
from ingest.batch.probe import probe
from ingest.contract.definition import Contract
from ingest.delta import id_index, id_segment, partition
from ingest.delta.batch_commit import BatchCommit, Upkeep
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.id_hash import id_hashes
from ingest.delta.id_index import IdIndex
from ingest.delta.id_segment import opened
from ingest.delta.index_state import IndexState, index_place, state_of
from ingest.delta.live_table import DataFile, LiveTable
from ingest.delta.merge_groups import FAN_IN
from ingest.delta.put import Operation
from ingest.delta.table_rows import schema_of
from ingest.repair.caretaker import Caretaker
from ingest.repair.erasure import Erasure, erase
from ingest.runtime.errors import InvalidInput
from tests.unit.batch.batch_model import KINDS, Event, Shape, record
from tests.unit.batch.local_desk import FILES, LocalDesk, Record, Sizes

pytestmark = pytest.mark.unit

COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}, {"name": "n", "type": "INT"}]
SCHEMA = pa.schema([("id", pa.string())])
# Somebody else's commits.
OTHER = BatchCommit(Upkeep(), "others", "table")


def contract(conflicts: str = "batch") -> Contract:
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "t", "format": "json"}, "columns": COLUMNS}
    return Contract.model_validate({**document, "event_id": ["id"], "conflicts": conflicts})


def random_ids(number: int, seed: int = 0) -> list[str]:
    random = Random(seed)
    return [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(number)]


def write(desk: LocalDesk, ids: Sequence[str], sizes: Sizes = FILES) -> int:
    """A batch of these ids; the rows that it added."""
    before, start = len(desk.rows()), desk.starts[0]
    desk.process([[Record(0, start + at, json.dumps({"id": id, "n": 1}).encode()) for at, id in enumerate(ids)]], sizes)
    return len(desk.rows()) - before


def folder_of(desk: LocalDesk) -> Path:
    return Path(desk.places.checkpoint) / "ids"


def live(desk: LocalDesk) -> LiveTable:
    return desk.writer.looked_at(desk.places.target)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The files of the target of which the ids, or for a comparison of payloads more, are read."""
    found: list[str] = []

    def noted(read: Any) -> Any:
        def reads(folder: str, file: Any, schema: pa.Schema) -> Any:
            found.append(file.path)
            return read(folder, file, schema)

        return reads

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_module, "read", noted(partition.read))
        patch.setattr(staged_module, "read", noted(partition.read))
        patch.setattr(id_index, "read_by_group", noted(partition.read_by_group))
        yield found


def test_rising_ids_touch_no_index(tmp_path: Path) -> None:
    desk = LocalDesk(contract(), tmp_path)
    for number in range(5):
        write(desk, [f"{number}{at}" for at in range(9)])
    assert not folder_of(desk).exists() and state_of(desk.places) is None


def test_ids_that_are_a_little_late_get_no_index_either(tmp_path: Path) -> None:
    """Each batch overlaps the newest file, and no older one: what it reads there will not be asked for again."""
    desk = LocalDesk(contract(), tmp_path)
    for number in range(5):
        assert write(desk, [f"{at:03}" for at in range(number * 9, number * 9 + 10)]) == (9 if number else 10)
    assert not list(folder_of(desk).glob("*.ids"))


def test_random_ids_read_each_file_once_and_every_duplicate_is_found(tmp_path: Path) -> None:
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(120)
    with opened_files() as read:
        for number in range(12):
            old = ids[: number * 10 : 3]
            assert write(desk, [*ids[number * 10 : number * 10 + 10], *old]) == 10
    assert len(read) == len({*read}) == 11, "all but the newest, once each"
    state = state_of(desk.places)
    assert state is not None and (state.rows, state.levels, state.answered, state.read, state.no_room) == (110, 11, 66, 11, 0)
    assert state.bytes == sum(path.stat().st_size for path in folder_of(desk).glob("*.ids"))


def test_a_few_old_ids_among_rising_ones_get_an_index_when_they_come_again(tmp_path: Path) -> None:
    desk = LocalDesk(contract(), tmp_path)
    for number in range(4):
        write(desk, [f"{number}{at}" for at in range(9)])
    for batch, opens in ((4, 3), (5, 3), (6, 1)):
        with opened_files() as read:
            assert write(desk, [*(f"{batch}{at}" for at in range(9)), "00", "11", "22"]) == 9
        assert len({*read} - {each.path for each in list(live(desk).live.values())[4:]}) <= opens
    segments = [opened(path) for path in folder_of(desk).glob("*.ids")]
    assert sum(segment.rows for segment in segments) == 27, "of the three old files"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(False, False), (True, True)], ids=["one column", "several, partitioned"])
def test_a_compaction_leaves_no_file_to_be_read_by_a_batch(kind: str, shape: tuple[bool, bool], tmp_path: Path) -> None:
    one = Shape(kind, *shape)
    desk = LocalDesk(one.contract(), tmp_path)
    numbers = [(at * 7) % 10 for at in range(2 * FAN_IN)]  # every batch is within the bounds of the files before it
    for at, number in enumerate((0, 9, *numbers)):
        other = Event((number + 5) % 10, "ab"[at % 2], at)
        desk.process([[record(one, (0, 2 * at), Event(number, "ab"[at % 2], at)), record(one, (0, 2 * at + 1), other)]], FILES)
    before = desk.rows()
    adds(desk, before)
    with opened_files() as read:
        desk.process([[record(one, (1, at), Event(at, "a", 0)) for at in range(10)]], FILES)
    read.clear()
    Caretaker(compacts=True).tend(None, desk.places, lambda: False)
    assert len(live(desk).live) < FAN_IN
    with opened_files() as read:
        desk.process([[record(one, (2, at), Event(at, "a", 0)) for at in range(10)]], FILES)
    assert read == []


def test_the_end_of_a_run_keeps_what_its_upkeep_has_indexed(tmp_path: Path) -> None:
    """The upkeep's last commit comes after the last batch, which does not know its files."""
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(4 * FAN_IN)
    for at in range(FAN_IN):
        write(desk, ids[at * 4 : at * 4 + 4])
    for _ in range(2):  # of few ids, the bounds of some files are narrow
        write(desk, ids)
    Caretaker(compacts=True).tend(None, desk.places, lambda: False)
    desk.writer.finish()
    target, index = live(desk), IdIndex.of(desk.places)
    assert index is not None and len(target.live) < FAN_IN
    assert len(index.covered(target, SCHEMA, list(target.live.values()))) == len(target.live)


def adds(desk: LocalDesk, rows: Sequence[Any]) -> None:
    """Many small files with the rows that are there: somebody appends them again."""
    table = live(desk)
    whole = pa.Table.from_pylist(list(rows), schema_of(table))
    assert table.state is not None
    files = [partition.write_files(table.path, whole, ("id",), table.state.partition_by, f"other-{at}-") for at in range(FAN_IN)]
    actions = [file.addition() for some in files for file in some]
    DirectWriter().unfenced(table.path, OTHER, lambda _: (Operation("WRITE", {}, {}), actions))


def test_upper_halves_that_are_equal_are_no_hit(tmp_path: Path) -> None:
    """I3: a hit is 128 equal bits."""
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(8)
    write(desk, ids)
    write(desk, random_ids(8, 1))
    (path,) = folder_of(desk).glob("*.ids")
    segment = opened(path)
    high, low, number = segment.columns
    assert {*id_hashes(pa.table({"id": ids}), bytes.fromhex(segment.of.secret))[0].tolist()} == {*high.tolist()}
    id_segment.write(path.parent, segment.of, segment.files, [((high, low ^ np.uint64(1), number), np.zeros(1, np.uint32))])
    path.unlink()
    assert write(desk, ids) == 8, "the index says that other ids are there"


def test_rows_of_a_file_that_is_gone_do_not_count(tmp_path: Path) -> None:
    """I3: its hashes may be in a segment together with those of live files."""
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(24)
    for at in range(0, 24, 8):
        write(desk, ids[at : at + 8])
    write(desk, ids)
    desk.writer.tidy_ids(desk.places.target)
    (segment,) = [opened(path) for path in folder_of(desk).glob("*.ids")]
    assert segment.rows == 24
    gone = next(file for file in live(desk).live.values() if segment.number(file) == 1)
    DirectWriter().unfenced(desk.places.target, OTHER, lambda _: (Operation("DELETE", {}, {}), [gone.removal(0)]))
    assert write(desk, ids) == 8


@pytest.mark.parametrize("how", ["a bit", "cut"])
def test_a_segment_that_somebody_writes_to_during_a_run_is_verified_again_and_made_anew(how: str, tmp_path: Path) -> None:
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(16)
    write(desk, ids[:8])
    assert write(desk, ids) == 8
    (path,) = folder_of(desk).glob("*.ids")
    data = bytearray(path.read_bytes())
    data[:64] = bytes(64)  # eight upper halves
    path.write_bytes(data if how == "a bit" else data[:64])
    assert write(desk, ids) == 0
    assert path not in folder_of(desk).iterdir() and sum(opened(each).rows for each in folder_of(desk).glob("*.ids")) == 16


def test_an_index_that_has_no_room_or_no_disk_leaves_the_files_to_be_read(tmp_path: Path) -> None:
    ids = random_ids(20)
    for name, index in {"full": IdIndex(tmp_path / "ids", 100), "no folder": IdIndex(Path("/dev/null/ids"), 10**9)}.items():
        desk = LocalDesk(contract(), tmp_path / name)
        desk.writer.ids = index
        live(desk).ids = index
        write(desk, ids[:10])
        with opened_files() as read:
            assert write(desk, ids) == 10 and write(desk, ids) == 0
        assert len(read) == {"full": 3, "no folder": 4}[name], "what cannot be written is not tried again at once"
    assert IndexState(**json.loads((tmp_path / "ids/state.json").read_text())).no_room == 3


def test_with_conflicts_table_only_files_with_a_hit_are_read_for_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "MOST", 0.0)  # the bounds of ten ids may be narrow
    desk, ids = LocalDesk(contract("table"), tmp_path), random_ids(40)
    for at in range(0, 40, 10):
        write(desk, ids[at : at + 10])
    write(desk, random_ids(10, 1))
    (old,) = [file for file in live(desk).live.values() if file.least["_offset"] == 0]
    with opened_files() as read:
        assert write(desk, [ids[3], *random_ids(9, 2)]) == 9
    newest = {file.path for file in live(desk).live.values() if file.least["_offset"] >= 40}
    assert {*read} - newest == {old.path}


def test_an_erasure_leaves_no_hash_of_an_id_that_it_erased(tmp_path: Path) -> None:
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(30)
    for at in range(0, 30, 10):
        write(desk, ids[at : at + 10])
    write(desk, ids)
    desk.writer.tidy_ids(desk.places.target)
    desk.table.epoch.ledger.append()
    (before,) = [opened(path) for path in folder_of(desk).glob("*.ids")]
    secret = bytes.fromhex(before.of.secret)
    person = int(id_hashes(pa.table({"id": [ids[4]]}), secret)[0][0])
    assert person in before.columns[0].tolist()
    erase(DirectWriter(), desk.places, Erasure(f"id = '{ids[4]}'", None, None), history=True)
    (after,) = [opened(path) for path in folder_of(desk).glob("*") if path.suffix == ".ids"]
    assert person not in after.columns[0].tolist() and after.rows == 20, "the file that was written again is read by the next batch"
    assert write(desk, ids) == 1


def test_a_cache_that_two_processes_started_goes_on_with_one_secret(tmp_path: Path) -> None:
    desk, ids = LocalDesk(contract(), tmp_path), random_ids(30)
    for at in range(0, 30, 10):
        write(desk, ids[at : at + 10])
    target = live(desk)
    others, files = IdIndex(folder_of(desk), 10**9), list(target.live.values())
    for path in folder_of(desk).glob("*.ids"):
        path.rename(path.with_suffix(".kept"))
    others.cover(target, SCHEMA, files[0], target.path)
    for path in folder_of(desk).glob("*.kept"):
        path.rename(path.with_suffix(".ids"))
    assert len({opened(path).of for path in folder_of(desk).glob("*.ids")}) == 2
    assert write(desk, ids) == 0
    desk.writer.tidy_ids(desk.places.target)
    (segment,) = [opened(path) for path in folder_of(desk).glob("*.ids")]
    assert segment.rows == 30
    assert probe(pa.table({"id": ids}, SCHEMA), files, target).keys() == {file.path for file in files}


def test_levels_stay_few_however_many_files_come(tmp_path: Path) -> None:
    desk = LocalDesk(contract(), tmp_path)
    target, index = live(desk), IdIndex(tmp_path / "ids", 10**9)
    target.ids = index
    for number in range(100):
        (staged,) = partition.write_files(target.path, pa.table({"id": random_ids(1 + number % 5, number)}, SCHEMA), ("id",), ())
        file = DataFile(staged.path, staged.path, staged.size, staged.rows, {})
        target.live[file.path] = file
        assert index.cover(target, SCHEMA, file, target.path)
        assert len(list((tmp_path / "ids").glob("*.ids"))) <= id_index.SEGMENTS_MAX + 1
    index.tidy(target)
    assert len(list((tmp_path / "ids").glob("*.ids"))) <= 6
    assert len(index.covered(target, SCHEMA, list(target.live.values()))) == 100


def test_a_long_first_batch_says_how_far_the_index_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The few rows of each batch of a run are no news."""
    monkeypatch.setattr(id_index, "SAY_EVERY_S", 0.0)
    monkeypatch.setattr(id_index, "SAY_ROWS", 10)
    said: list[str] = []
    desk = LocalDesk(contract(), tmp_path)
    write(desk, random_ids(9, 2))
    live(desk).ids = IdIndex.of(desk.places, said.append)
    write(desk, random_ids(10, 1))
    assert said == []
    write(desk, random_ids(1, 3))
    assert said == ["shop.orders: event ids are being indexed: 19 rows so far"]


@pytest.mark.parametrize(
    ("text", "found"), [("", 4_096_000_000), ("5", 5_000_000), ("0", None), ("-1", "ID_INDEX_INVALID"), ("1.5", "ID_INDEX_INVALID")]
)
def test_the_limit_is_a_number_of_megabytes(text: str, found: int | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = LocalDesk(contract(), tmp_path).places
    monkeypatch.setenv("INGEST_ID_INDEX_MB", text)
    if isinstance(found, str):
        with pytest.raises(InvalidInput) as error:
            index_place(places)
        assert error.value.code == found
    else:
        place = index_place(places)
        assert (place and place[1]) == found
