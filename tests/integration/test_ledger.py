"""The ledger is derived from the target's commits: it may lag until the next run completes it, but it is never ahead (I4, I7)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ingest.delta.delta_sql import DataFusion
from ingest.delta.stored_rows import QUARANTINE
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.ledger.books import joined
from ingest.ledger.ledger_line import Line
from ingest.ledger.ledger_reader import ledger_lines
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair.erasure import Erasure, erase
from ingest.repair.retention import remove, retirable
from ingest.runtime.files import LocalFiles
from tests.integration.desk import Desk
from tests.integration.lane import figures, order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
AGAIN = Seeking(Aim("table"), accept_gap=False, reason="--to table")


def stored(desk: Desk) -> list[Line]:
    """The ledger's lines, as they are stored."""
    return ledger_lines(DataFusion(), desk.places)


def balance(desk: Desk) -> list[tuple[int, ...]]:
    """Of each batch and partition: epoch, batch, partition, start and end, and the figures of `Lane.accounts`."""
    batches = joined([line for line in stored(desk) if line.posting.why == "batch"])
    places = [(line.posting.key, line.posting.range) for line in batches]
    positions = [(key.epoch, key.batch, key.partition, at.start, at.end) for key, at in places if at is not None]
    return [(*at, *each) for at, each in zip(positions, figures(batches), strict=True)]


def test_the_next_run_completes_the_ledger_from_the_targets_log_with_each_line_once(desk: MakeDesk) -> None:
    """I7: lines that a killed driver did not append are taken from the commits, with the same counts. Appending them again adds nothing."""
    one = desk({"n": "INT"}, partitions=2)
    one.batch(order("a"), order("b"), "{")
    one.process(one.frame_of([(0, order("a"), None), (1, order("c"), None)]), gap=3)
    one.process(one.frame(), gap=2)
    assert stored(one) == []
    killed, one.table = one.table, one.open()
    one.table.epoch.ledger.append_if_due(one.session)
    assert stored(one) == [], "a minute has not passed"
    one.table.epoch.finish()
    expected = [
        (1, 2, 0, 0, 3, 3, 2, 0, 0, 1, 0),
        (1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 3, 0, 3, 7, 1, 0, 1, 0, 0, 3),
        (1, 3, 1, 0, 1, 1, 1, 0, 0, 0, 0),
        (1, 4, 0, 7, 9, 0, 0, 0, 0, 0, 2),
        (1, 4, 1, 1, 1, 0, 0, 0, 0, 0, 0),
    ]
    assert balance(one) == expected
    rows = stored(one)
    killed.epoch.ledger.append()
    assert stored(one) == rows, "the ledger says up to which versions it is complete"
    one.table = one.open()
    one.batch(order("d"))
    one.table.epoch.finish()
    assert balance(one)[6:] == [(3, 2, 0, 9, 10, 1, 1, 0, 0, 0, 0), (3, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0)]
    one.balanced()


@pytest.mark.slow
def test_a_seek_posts_what_was_missing_and_the_accepted_gap(desk: MakeDesk) -> None:
    """I4: rows lost before the seek do not count as lost any more, and as new ones once their offsets are read again."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"), order("c"), "{")
    one.target().where("id <> 'c'").write.format("delta").mode("overwrite").save(one.places.target)
    one.table = one.open(AGAIN)
    one.table.epoch.ledger.append()
    one.balanced()
    one.batch(order("b"), order("c"), "{")
    one.table = one.open(Seeking(Aim("offsets", ((("", 0), 7),)), accept_gap=True, reason="--to 0:7"))
    one.table.epoch.ledger.append()
    assert balance(one)[2:] == [(2, 2, 0, 1, 4, 3, 1, 2, 0, 0, 0)]
    postings = [line.posting for line in stored(one) if line.posting.why != "batch"]
    assert sorted((each.why, each.key.epoch, each.key.batch, str(each.range), each.inserted) for each in postings) == [
        ("first", 1, 1, "0:[0,0)", 0),
        ("gap", 3, 1, "0:[4,7)", 0),
        ("seek", 2, 1, "0:[1,1)", 0),
        ("seek", 3, 1, "0:[7,7)", 0),
        ("write-off", 1, 3, "None", -1),
    ]
    one.balanced()


@pytest.mark.slow
def test_inserted_by_partition_is_exact_if_only_some_winners_are_new(desk: MakeDesk) -> None:
    """I4: summed up from the files that the commit added, here in a partitioned table."""
    one = desk({"day": "DATE!"}, partitions=3, layout={"partition_by": ["day"]})

    def event(name: str, day: int) -> str:
        return order(name, day=f"2024-05-0{day}")

    one.process(one.frame_of([(p, event(f"{p}{n}", 1 + n % 2), None) for p in range(3) for n in range(4)]))
    one.process(one.frame_of([(p, event(f"{(p + 1) % 3}{n}", 1 + n % 3), None) for p in range(3) for n in range(3 + p)]))
    one.table.epoch.finish()
    rows = [(batch, partition, inserted, present) for _, batch, partition, _, _, _, inserted, present, *_ in balance(one)]
    # Ids 00 to 23 exist (partition and number). In the second batch, only id 04 is new; it comes from partition 2.
    assert rows == [(2, 0, 4, 0), (2, 1, 4, 0), (2, 2, 4, 0), (3, 0, 0, 3), (3, 1, 0, 4), (3, 2, 1, 4)]
    assert one.target().count() == 13


@pytest.mark.slow
def test_a_batch_lists_no_log_folder(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a listing grows with the table's history, so commits after the known ones are looked up by file name."""
    one = desk()
    listed: list[str] = []
    names = LocalFiles.names

    def counted(self: LocalFiles, folder: str) -> list[str]:
        if folder.endswith("_delta_log"):
            listed.append(folder)
        return names(self, folder)

    one.batch(order("a"), "no JSON")
    one.table.epoch.ledger.append()
    monkeypatch.setattr(LocalFiles, "names", counted)
    one.batch(order("b"), "no JSON")
    one.batch(order("c"))
    one.table.epoch.ledger.append()
    assert listed == []
    assert one.rows("id") == [("a",), ("b",), ("c",)]


def deleted(ledger: Path) -> None:
    shutil.rmtree(ledger)


def restored(ledger: Path) -> None:
    DeltaTable(str(ledger)).restore(0)


def cut(ledger: Path) -> None:
    """Lines are gone without a RESTORE, as after a DELETE by somebody."""
    DeltaTable(str(ledger)).delete("why = 'batch'")


def older(ledger: Path) -> None:
    """A copy of the ledger, of before its last commits, was put back."""
    for path in sorted((ledger / "_delta_log").glob("*.json"))[2:]:
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [deleted, restored, cut, older])
def test_a_ledger_that_lost_lines_is_made_again_by_the_next_start_and_no_seek_reads_erased_rows(
    desk: MakeDesk, damage: Callable[[Path], None]
) -> None:
    """I4, I6, I7: also after an erasure and a retention, whose records a seek to the table's end must not read again."""
    one = desk({"n": "INT"})
    one.batch(order("a"), order("b"), "{", order("c"), "[")
    one.table.epoch.finish()
    if one.direct is not None:  # `ingest quarantine drop`, then the retention
        one.direct.set_state(one.places, "offset = 2", "dropped", "test")
    else:
        one.session.sql(f"UPDATE delta.`{one.places.quarantine}` SET state = 'dropped' WHERE offset = 2")
    writer: TableWriter = one.direct or SparkWriter(one.session)
    erase(writer, one.places, Erasure("id = 'a'", "offset = 4", None), history=False)
    (gone,) = [retirable(DataFusion(), one.places, datetime.now(UTC) + timedelta(hours=1))]
    assert remove(writer, one.places, gone, one.places.quarantine, QUARANTINE, "retention") == 1
    before = one.balanced()
    assert (before.target.retired, before.quarantine.retired) == (1, 2)
    damage(Path(one.places.ledger))
    one.forget_tables()

    one.table = one.open()
    assert one.table.epoch.starts == {(0, 0): 5}
    one.table.epoch.finish()
    after = one.balanced()
    assert (after.target, after.quarantine, after.total, after.unledgered) == (before.target, before.quarantine, before.total, 0)
    assert {line.posting.why for line in stored(one)} >= {"first", "batch", "erasure", "retention"}
    one.table = one.open(AGAIN)
    assert one.table.epoch.starts == {(0, 0): 5}, "what was erased is read no more"
    one.batch(order("d"))
    one.table.epoch.finish()
    assert one.balanced().target.found == 3 and len(one.quarantine()) == 0


@pytest.mark.slow
def test_no_append_makes_a_ledger_that_somebody_deleted(desk: MakeDesk) -> None:
    one = desk()
    one.batch(order("a"), "{")
    one.table.epoch.ledger.append()
    rows = balance(one)
    shutil.rmtree(one.places.ledger)
    with pytest.raises(Exception, match=r"(?i)delta"):
        one.table.epoch.ledger.append()
    assert not Path(one.places.ledger, "_delta_log").exists()
    one.table = one.open()
    one.table.epoch.ledger.append()
    assert balance(one) == rows
