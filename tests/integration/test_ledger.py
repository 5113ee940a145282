"""The ledger is derived from the target's commits: it may lag until the next run completes it, but it is never ahead (I4, I7)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.runtime.files import LocalFiles
from tests.integration.desk import Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
BALANCE = ("epoch", "batch", "partition", "start_offset", "end_offset", "records_read", "inserted", "duplicate", "quarantined", "gap")


def stored(desk: Desk) -> list[Row]:
    """The rows stored in the ledger, without the pending ones."""
    return desk.session.read.format("delta").load(desk.places.ledger).orderBy("epoch", "batch", "kind", "partition").collect()


def balance(desk: Desk) -> list[tuple[int, ...]]:
    return [tuple(row[column] for column in BALANCE) for row in stored(desk) if row["kind"] == "batch"]


def test_the_next_run_completes_the_ledger_from_the_targets_log_with_each_row_once(desk: MakeDesk) -> None:
    """I7: rows that a killed driver did not append are taken from the commits, with the same counts. Appending them again adds nothing."""
    one = desk({"n": "INT"}, partitions=2)
    one.batch(order("a"), order("b"), "{")
    one.process(one.frame_of([(0, order("a"), None), (1, order("c"), None)]), gap=3)
    one.process(one.frame(), gap=2)
    assert stored(one) == []
    killed, one.table = one.table, one.open()
    one.table.epoch.ledger.append_if_due(one.session)
    assert stored(one) == [], "a minute has not passed"
    one.table.epoch.ledger.append()
    expected = [
        (1, 2, 0, 0, 3, 3, 2, 0, 1, 0),
        (1, 2, 1, 0, 0, 0, 0, 0, 0, 0),
        (1, 3, 0, 3, 7, 1, 0, 1, 0, 3),
        (1, 3, 1, 0, 1, 1, 1, 0, 0, 0),
        (1, 4, 0, 7, 9, 0, 0, 0, 0, 2),
        (1, 4, 1, 1, 1, 0, 0, 0, 0, 0),
    ]
    assert balance(one) == expected
    rows = stored(one)
    killed.epoch.ledger.append()
    assert stored(one) == rows, "the MERGE compares keys"
    one.batch(order("d"))
    one.table.epoch.ledger.append()
    assert balance(one)[6:] == [(2, 2, 0, 9, 10, 1, 1, 0, 0, 0), (2, 2, 1, 1, 1, 0, 0, 0, 0, 0)]


@pytest.mark.slow
def test_a_seek_records_the_existing_rows_of_re_read_batches_and_the_accepted_gap(desk: MakeDesk) -> None:
    """I4: rows deleted before the seek do not count as lost once their offsets are re-read."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"), order("c"), "{")
    one.session.sql(f"DELETE FROM delta.`{one.places.target}` WHERE id = 'c'").collect()
    one.table = one.open(Seeking(Aim("offsets", ((0, 1),)), accept_gap=False, reason="--to 0:1"))
    one.table.epoch.ledger.append()
    batches = {row["batch"]: row["stood"] for row in stored(one) if row["kind"] == "batch"}
    assert batches == {2: None, 3: 2}, "one row and one quarantined record still existed"
    one.batch(order("b"), order("c"), "{")
    one.table = one.open(Seeking(Aim("offsets", ((0, 7),)), accept_gap=True, reason="--to 0:7"))
    one.table.epoch.ledger.append()
    assert balance(one)[2:] == [(2, 2, 0, 1, 4, 3, 1, 2, 0, 0)]
    found = [(row["kind"], row["epoch"], row["batch"], row["why"], row["start_offset"], row["gap"]) for row in stored(one)]
    assert [each for each in found if each[0] != "batch"] == [
        ("epoch", 1, 1, "first", 0, 0),
        ("epoch", 2, 1, "seek", 1, 0),
        ("epoch", 3, 1, "seek", 7, 0),
        ("gap_accepted", 3, 1, None, 4, 3),
    ]


@pytest.mark.slow
def test_inserted_by_partition_is_exact_if_only_some_winners_are_new(desk: MakeDesk) -> None:
    """I4: counted from the files that the commit added, here in a partitioned table."""
    one = desk({"day": "DATE!"}, partitions=3, layout={"partition_by": ["day"]})

    def event(name: str, day: int) -> str:
        return order(name, day=f"2024-05-0{day}")

    one.process(one.frame_of([(p, event(f"{p}{n}", 1 + n % 2), None) for p in range(3) for n in range(4)]))
    one.process(one.frame_of([(p, event(f"{(p + 1) % 3}{n}", 1 + n % 3), None) for p in range(3) for n in range(3 + p)]))
    rows = [(row["batch"], row["partition"], row["inserted"], row["duplicate"]) for row in one.ledger()]
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


@pytest.mark.slow
def test_a_deleted_ledger_is_recreated_from_the_targets_log_by_the_next_start(desk: MakeDesk) -> None:
    one = desk()
    one.batch(order("a"), "{")
    one.table.epoch.ledger.append()
    rows = balance(one)
    shutil.rmtree(one.places.ledger)
    with pytest.raises(Exception, match=r"(?i)delta"):
        one.table.epoch.ledger.saw(*one_batch(one))
        one.table.epoch.ledger.append()
    assert not Path(one.places.ledger, "_delta_log").exists(), "an append does not recreate the ledger"
    one.table = one.open()
    one.table.epoch.ledger.append()
    assert balance(one) == rows


def one_batch(desk: Desk) -> Any:
    """Commit and BatchCommit of the newest batch."""
    found = [
        (each, each.batch_commit) for each in desk.log().since(-1) if each.batch_commit is not None and each.batch_commit.kind == "batch"
    ]
    return found[-1]
