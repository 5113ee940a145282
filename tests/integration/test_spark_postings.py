"""Spark's MERGE tells only afterwards what it inserted, so a later commit posts it. The books balance at every moment in between (I4)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ingest.delta.batch_commit import Batch, BatchCommit, State
from ingest.delta.delta_sql import DataFusion
from ingest.delta.posting import Posting
from ingest.delta.stored_rows import QUARANTINE
from ingest.delta.table_writer import SparkWriter
from ingest.ledger.ledger_reader import ledger_lines, read_ledger
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.repair.erasure import Erasure, erase
from ingest.repair.retention import remove, retirable
from ingest.run import table_lock
from ingest.runtime import crash_points
from tests.integration.desk import TOPIC_ID, Desk
from tests.integration.lane import Lane, order
from tests.integration.test_commands import ended

pytestmark = pytest.mark.integration


@pytest.fixture
def by_workers() -> bool:
    return False


def newest(one: Desk | Lane) -> BatchCommit:
    found = one.log().commit(one.log().newest()).batch_commit
    assert found is not None
    return found


def posted(batch_commit: BatchCommit) -> list[tuple[int, int, int | None]]:
    """Batch, rows and present records of the postings that complete an earlier one."""
    found = [each for each in batch_commit.postings if each.range is None]
    return [(each.key.batch, each.inserted, each.present) for each in found]


def still_open(one: Desk | Lane) -> set[Posting]:
    """The lines of the ledger that no other one completes."""
    postings = [line.posting for line in ledger_lines(DataFusion(), one.places)]
    said = {each.key for each in postings if not each.is_open and each.range is None}
    return {each for each in postings if each.is_open and each.key not in said}


def test_each_batch_is_posted_by_the_next_commit_and_the_last_by_one_of_its_own(desk: Callable[..., Desk]) -> None:
    one = desk({"n": "INT"})
    one.batch(order("a"), order("a"), "{")
    assert [each.read for each in newest(one).opened] == [3] and one.balanced().total.duplicate == 1
    one.batch(order("a"), order("b"))
    assert posted(newest(one)) == [(2, 1, 0)]
    assert one.balanced().total.present == 1
    one.table.epoch.ledger.append()
    assert {each.key.batch for each in still_open(one)} == {3}
    one.batch("{")
    assert posted(newest(one)) == [(3, 1, 1)]
    one.balanced()
    one.table.epoch.finish()
    assert isinstance(newest(one).case, State) and posted(newest(one)) == [(4, 0, 0)]
    found = one.balanced()
    assert (found.unledgered, still_open(one)) == (0, set())
    assert (found.total.read, found.total.inserted, found.total.present, found.total.duplicate, found.total.quarantined) == (6, 2, 1, 1, 2)
    one.table = one.open()
    one.batch(order("c"))
    one.table.epoch.finish()
    assert one.balanced().target.found == 3


@pytest.mark.slow
def test_what_leaves_an_open_batch_does_not_close_it_and_an_erasure_posts_it_before_its_files_go(desk: Callable[..., Desk]) -> None:
    one = desk({"n": "INT"})
    one.batch(order("a"), order("b"), "{", "[")
    one.table.epoch.ledger.append()
    writer, at = SparkWriter(one.session.newSession()), datetime.now(UTC) + timedelta(hours=1)
    gone = retirable(DataFusion(), one.places, at, open_too=True)
    assert remove(writer, one.places, gone, one.places.quarantine, QUARANTINE, "retention") == 2
    found = one.balanced()
    assert (found.total.inserted, found.total.quarantined, found.quarantine.retired) == (2, 2, 2)
    erase(writer, one.places, Erasure("id = 'a'", None, None), history=True)
    found = one.balanced()
    assert (found.total.inserted, found.target.retired, found.books.unsettled) == (2, 1, frozenset())
    one.table = one.open()
    one.batch(order("c"))
    one.table.epoch.finish()
    assert (one.balanced().total.inserted, still_open(one)) == (3, set())


@pytest.mark.slow
def test_a_posting_in_a_commit_of_another_topic_is_of_the_batchs_own_topic(desk: Callable[..., Desk]) -> None:
    """I6: the topic was recreated, and the seek that goes on with it posts the batch before."""
    one = desk()
    one.batch(order("a"))
    one.topic_id = "another"
    one.table = one.open(Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest"))
    assert posted(newest(one)) == [(2, 1, 0)]
    one.batch(order("b"))
    one.table.epoch.finish()
    newest_of_ledger = read_ledger(None, one.log("ledger"), one.places.name).newest
    assert newest_of_ledger is not None and [each.id for each in newest_of_ledger.sources] == [TOPIC_ID, "another"]
    assert {number: each.id for number, each in one.balanced().books.topics.items()} == {0: TOPIC_ID, 1: "another"}


@pytest.mark.slow
@pytest.mark.parametrize("direct", [False, True], ids=["spark", "direct"])
def test_a_batch_whose_run_was_killed_behind_its_commit_is_posted_by_the_next_run(lane: Callable[..., Lane], direct: bool) -> None:
    """Whoever writes then. Nobody has to do anything before the table balances."""
    one = lane({"n": "INT"})
    one.send(order("a"), "{")
    one.run()
    one.send(order("a"), order("b"), order("b"), "{")
    (Path(one.places.lake) / crash_points.SCRATCH).touch()
    killed = ended(one, "run", "--once", more={"INGEST_WRITER": "spark", "INGEST_FAULT": "after_target:kill@2"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    table_lock.wait_for(one.places)  # the JVM may still be ending
    assert newest(one).opened and newest(one).id.epoch == 2
    one.balanced()
    total = one.verified().total
    assert (total.read, total.inserted, total.present, total.duplicate, total.quarantined) == (6, 2, 1, 1, 2)
    one.forget_tables()
    one.direct = direct
    one.send(order("c"))
    one.run()
    ((_, first),) = [(commit, each) for commit, each in one.batches() if each.id.epoch == 3]
    assert isinstance(first.case, Batch) and posted(first) == [(2, 1, 1)]
    assert still_open(one) == set() and one.verified().total.inserted == 3
    one.balanced()
