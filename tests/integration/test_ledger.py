"""The ledger is a projection of the target's commits: it may lag, is completed by the next run, and never leads (I4, I7)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ingest.errors import RunStopped
from ingest.files import LocalFiles
from ingest.stream import commit
from ingest.stream.decide import Skip, decide
from ingest.stream.tally import rank
from tests.integration.desk import QUERY, Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
BALANCE = ("batch_id", "partition", "start_offset", "end_offset", "records_read", "inserted", "duplicate", "quarantined", "replayed", "gap")


def balance(desk: Desk) -> list[tuple[int, ...]]:
    return [tuple(row[column] for column in BALANCE) for row in desk.ledger()]


@pytest.mark.parametrize(
    ("old", "at_start"),
    [pytest.param(timedelta(hours=1), 0, id="young"), pytest.param(timedelta(0), 6, id="old", marks=pytest.mark.slow)],
)
def test_the_next_run_completes_the_ledger_from_the_targets_log_exactly_once(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, old: timedelta, at_start: int
) -> None:
    """I7: what a killed driver did not append comes from the commits, with the same figures; a second start adds nothing. What the
    log may soon lose is appended before the first batch, the rest with the run's own."""
    monkeypatch.setattr("ingest.stream.ledger.APPEND_AT_ONCE_AFTER", old)
    one = desk({"n": "INT"}, partitions=2)
    one.table.ledger._appended_at = float("inf")  # the minute has not passed
    one.batch(order("a"), order("b"), "{")
    one.process(one.frame_of([(0, order("a"), None), (1, order("c"), None)]), gap=3)
    one.process(one.frame(), gap=2)
    ledger = one.session.read.format("delta").load(one.places.ledger)
    assert ledger.count() == 0
    one.table = one.open()
    assert ledger.count() == at_start
    one.table.ledger.append_if_due(one.session)
    assert ledger.count() == at_start, "a minute has not passed"
    expected = [
        (0, 0, 0, 3, 3, 2, 0, 1, 0, 0),
        (0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 0, 3, 7, 1, 0, 1, 0, 0, 3),
        (1, 1, 0, 1, 1, 1, 0, 0, 0, 0),
        (2, 0, 7, 9, 0, 0, 0, 0, 0, 2),
        (2, 1, 1, 1, 0, 0, 0, 0, 0, 0),
    ]
    assert balance(one) == expected
    assert [row["target_version"] for row in one.ledger()] == [1, 1, 2, 2, 3, 3]
    one.table = one.open()
    assert balance(one) == expected
    one.batch(order("d"))
    assert balance(one)[6:] == [(3, 0, 9, 10, 1, 1, 0, 0, 0, 0), (3, 1, 1, 1, 0, 0, 0, 0, 0, 0)]


def test_the_next_run_knows_the_last_batch_even_when_the_log_files_are_gone(desk: MakeDesk) -> None:
    """I2, I7: Delta cleans up commit files after 30 days; the ledger then proves the skip."""
    one = desk()
    frame = one.frame(order("a"), order("a"))
    one.process(frame)
    one.ledger()
    one.session.sql(f"ALTER TABLE delta.`{one.places.target}` SET TBLPROPERTIES (somebody = 'else')")
    jvm: Any = one.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(one.session._jsparkSession, one.places.target).checkpoint()
    for version in (0, 1):
        (Path(one.places.target) / f"_delta_log/{version:020}.json").unlink()
    one.table = one.open()
    last = one.table.ledger.last_written(QUERY)
    assert last is not None
    assert isinstance(decide(one.table.mark(one.table.checkpoint.planned(QUERY, 0)), last), Skip)
    assert one.again(frame).skipped
    assert one.rows("id") == [("a",)]


@pytest.mark.slow
def test_metadata_that_a_commit_of_somebody_else_carries_is_no_batch(desk: MakeDesk) -> None:
    """an OPTIMIZE on the session can carry our userMetadata; without the pair it is not ours."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"))
    mark = one.mark(7, 5, 9)
    one.session.conf.set(commit.METADATA, mark.to_json())
    try:
        one.session.sql(f"OPTIMIZE delta.`{one.places.target}`").collect()
    finally:
        one.session.conf.unset(commit.METADATA)
    newest = one.table.ledger.target_log.since(2)[-1]
    assert (newest.operation, newest.user_metadata, newest.mark) == ("OPTIMIZE", mark.to_json(), None)
    one.table = one.open()
    last = one.table.ledger.last_written(QUERY)
    assert last is not None and last.mark.id.number == 1
    assert one.batch(order("c")).inserted == 1
    assert [row[0] for row in balance(one)] == [0, 1, 2]


def test_inserted_by_partition_is_exact_where_only_some_winners_are_new(desk: MakeDesk) -> None:
    """I4: counted from the files that the commit added, in plain, clustered and partitioned tables."""
    one = desk({"day": "DATE!"}, partitions=3, layout={"partition_by": ["day"]})

    def event(name: str, day: int) -> str:
        return order(name, day=f"2024-05-0{day}")

    one.process(one.frame_of([(p, event(f"{p}{n}", 1 + n % 2), None) for p in range(3) for n in range(4)]))
    one.process(one.frame_of([(p, event(f"{(p + 1) % 3}{n}", 1 + n % 3), None) for p in range(3) for n in range(3 + p)]))
    rows = [(row["batch_id"], row["partition"], row["inserted"], row["duplicate"]) for row in one.ledger()]
    # Ids 00 to 23 are there; partitions 1 and 2 offer ids up to 23 and 04.
    assert rows == [(0, 0, 4, 0), (0, 1, 4, 0), (0, 2, 4, 0), (1, 0, 0, 3), (1, 1, 0, 4), (1, 2, 1, 4)]
    assert one.target().count() == 13


@pytest.mark.parametrize("names", [["a"], []], ids=["the next", "the first"])
def test_another_query_on_the_table_is_noticed_before_the_next_batch(desk: MakeDesk, names: list[str]) -> None:
    """I2, I8: two checkpoints on one table never write it at the same time unseen, also when one of them has just begun."""
    one = desk()
    for name in names:
        one.batch(order(name))
    stranger = one.mark(0, 0, 1)
    object.__setattr__(stranger.id, "query_id", "99999999-aaaa")
    commit.merge_target(one.target().where("false"), one.contract, one.table.ledger.target_log, stranger, {})
    with pytest.raises(RunStopped, match="TABLE_OWNED"):
        one.batch(order("b"))
    assert one.rows("id") == [(name,) for name in names]


@pytest.mark.slow
def test_a_restore_in_the_middle_of_a_batch_stops_it_before_it_is_written(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: the batch was decided on a table that is no longer so; behind the RESTORE it would hide what this took away."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"))

    def restored_meanwhile(*arguments: Any, **named: Any) -> Any:
        one.session.sql(f"RESTORE TABLE delta.`{one.places.target}` TO VERSION AS OF 1").collect()
        return rank(*arguments, **named)

    monkeypatch.setattr("ingest.stream.batch.rank", restored_meanwhile)
    with pytest.raises(RunStopped, match="TABLE_REWOUND"):
        one.batch(order("c"))
    assert one.rows("id") == [("a",)]


@pytest.mark.slow
def test_a_batch_lists_no_folder_of_a_log(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing costs as much as a table is old; what follows the commits that are known is asked for by name."""
    one = desk()
    listed: list[str] = []
    names = LocalFiles.names

    def counted(self: LocalFiles, folder: str) -> list[str]:
        if folder.endswith("_delta_log"):
            listed.append(folder)
        return names(self, folder)

    monkeypatch.setattr(LocalFiles, "names", counted)
    one.batch(order("a"), "no JSON")
    one.table.ledger.append(one.session)
    assert len(listed) <= 3, "once each of target, quarantine and ledger"
    listed.clear()
    one.batch(order("b"), "no JSON")
    one.batch(order("c"))
    one.table.ledger.append(one.session)
    assert listed == []
    assert one.rows("id") == [("a",), ("b",), ("c",)]


def test_a_table_that_is_dropped_in_the_middle_of_a_batch_is_not_made_anew_by_it(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: an append to a folder without a log would make a table of its own there."""
    one = desk()
    one.batch(order("a"))
    shutil.rmtree(one.places.ledger)
    one.batch(order("b"))
    with pytest.raises(RunStopped, match=r"TABLE_REWOUND.*was dropped or moved away"):
        one.table.ledger.append(one.session)
    assert not Path(one.places.ledger).exists()
