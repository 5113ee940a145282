"""The writer: transaction id and BatchCommit of each commit, conflicts, and no session setting left for the next statement (I1, I3)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.contract.columns import target_fields
from ingest.decode.decoder import decode
from ingest.decode.event_plan import BatchSource
from ingest.delta import writer
from ingest.delta.batch_commit import BatchCommit
from ingest.delta.commit import Commit
from ingest.ledger.projection import EVERY_VARIABLE
from ingest.run import table_lock
from ingest.runtime import crash_points
from ingest.runtime.errors import Bug, RunStopped
from tests.integration.desk import TOPIC_ID, Desk
from tests.integration.gate import Gate
from tests.integration.lane import order
from tests.integration.records import KAFKA_TIME

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
CONFS = (writer.APP_ID, writer.VERSION, writer.METADATA)


def rows(desk: Desk, batch_commit: BatchCommit, *values: str) -> DataFrame:
    """Rows with the target's columns, as a batch passes them to the MERGE."""
    events = decode(desk.frame(*values), desk.contract, BatchSource((TOPIC_ID,), batch_commit.id.epoch, batch_commit.id.number, KAFKA_TIME))
    return events.select(*(field.name for field in target_fields(desk.contract)))


def merge(desk: Desk, source: DataFrame, batch_commit: BatchCommit) -> Commit:
    return writer.merge_target(source, desk.contract, desk.log(), {}, lambda: batch_commit)


def left_set(session: SparkSession) -> list[str]:
    return [key for key in CONFS if session.conf.get(key, None) is not None]


def append_elsewhere(session: SparkSession, path: Path) -> int:
    """The rows after two plain appends to a foreign table. If our transaction id were still set, Delta would skip the second one."""
    frame = session.createDataFrame([(1,)], "n int")
    for _ in range(2):
        frame.write.format("delta").mode("append").save(str(path))
    return session.read.format("delta").load(str(path)).count()


def test_a_commit_has_transaction_id_and_metadata_and_leaves_no_session_setting_behind(desk: MakeDesk, tmp_path: Path) -> None:
    """I1"""
    one = desk()
    batch_commit = one.batch_commit(2, 0, 2)
    made = merge(one, rows(one, batch_commit, order("a"), order("b")), batch_commit)
    assert made.batch_commit == batch_commit and made.version == one.log().newest()
    assert made.transactions == {"oncelake/t/events": (1 << 32) + 2}
    assert left_set(one.session) == []
    assert append_elsewhere(one.session, tmp_path / "other") == 2


@pytest.mark.slow
def test_a_failed_commit_writes_nothing_and_leaves_no_session_setting_behind(desk: MakeDesk, tmp_path: Path) -> None:
    """I1: a commit has its transaction id and BatchCommit, or it does not happen."""
    one = desk({"n": "INT"})
    batch_commit, before = one.batch_commit(2), one.log().newest()
    failing = rows(one, batch_commit, order("a", n=1)).withColumn("n", F.raise_error(F.lit("the disk is full")).cast("int"))
    with pytest.raises(Exception, match="the disk is full"):
        merge(one, failing, batch_commit)
    assert left_set(one.session) == [] and one.log().newest() == before
    assert append_elsewhere(one.session, tmp_path / "other") == 2
    assert merge(one, rows(one, batch_commit, order("a", n=1)), batch_commit).version == before + 1


def test_a_merge_without_its_transaction_id_adds_no_duplicate_and_is_detected(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: the MERGE itself prevents duplicate event ids. I1: a commit without our transaction id is not ours."""

    @contextlib.contextmanager
    def nothing_set(*_: Any) -> Iterator[None]:
        yield

    one = desk()
    one.batch(order("a"), order("b"))
    monkeypatch.setattr(writer, "_transaction", nothing_set)
    batch_commit = one.batch_commit(3, 2, 5)
    with pytest.raises(Bug, match="COMMIT_MISSING"):
        merge(one, rows(one, batch_commit, order("b"), order("c"), order("a")), batch_commit)
    assert sorted(one.rows("id")) == [("a",), ("b",), ("c",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE delta.`{}` SET n = 7 WHERE id = 'a'", id="update"),
        pytest.param("DELETE FROM delta.`{}` WHERE id = 'b'", id="delete"),
        pytest.param("OPTIMIZE delta.`{}`", id="optimize"),
        pytest.param("VACUUM delta.`{}`", id="vacuum"),
    ],
)
def test_a_merge_that_conflicts_with_a_foreign_commit_is_retried_on_the_new_version(desk: MakeDesk, tmp_path: Path, statement: str) -> None:
    """I3: after the retry the row exists once, and only one commit has the transaction id."""
    one = desk({"n": "INT"})
    one.batch(order("a", n=1))
    one.batch(order("b", n=1))
    before = one.log().newest()
    foreign = one.session.newSession()  # in our session, the statement would carry our transaction id
    gate = Gate(tmp_path, lambda: foreign.sql(statement.format(one.places.target)).collect())
    batch_commit = one.batch_commit(4, 2, 4)
    merge(one, gate.behind(rows(one, batch_commit, order("a", n=9), order("c", n=1))), batch_commit)
    # VACUUM keeps files younger than its retention, but still writes a start and an end commit to the log.
    theirs = ["VACUUM START", "VACUUM END"] if "VACUUM" in statement else [statement.partition(" ")[0]]
    assert [each.operation for each in one.log().since(before)] == [*theirs, "MERGE"]
    assert [each.version for each in one.log().since(0) if each.batch_commit == batch_commit] == [before + 1 + len(theirs)]
    assert sorted(name for (name,) in one.rows("id")) == (["a", "c"] if "DELETE" in statement else ["a", "b", "c"])


def test_if_the_store_reports_an_error_after_a_commit_the_log_decides(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1, I8: for fences, quarantine and target, the writer looks up an unknown outcome in the log instead of guessing it."""

    def lose_the_reply(name: str) -> None:
        original = getattr(writer, name)

        def without_reply(*arguments: Any, **named: Any) -> None:
            original(*arguments, **named)
            raise TimeoutError("the reply was lost")

        monkeypatch.setattr(writer, name, without_reply)

    lose_the_reply("append_nothing")
    lose_the_reply("_insert_missing")
    one = desk()
    report = one.batch(order("a"), "{")
    assert (one.table.epoch.writer.epoch, report.inserted, report.quarantined) == (1, 1, 1)
    assert [str(each.batch_commit.id) for each in one.log().since(0) if each.batch_commit] == ["1/0", "1/1", "1/2"]


@pytest.mark.parametrize(("point", "added"), [("after_quarantine", (0, 1)), ("after_target", (1, 1))])
def test_a_run_that_loses_its_lock_writes_nothing_more(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, point: str, added: tuple[int, int]
) -> None:
    """I8: another run may have locked a new file of that name, and on a local disk two drivers overwrite each other's commits."""
    one = desk({"n": "INT"})
    monkeypatch.setenv(EVERY_VARIABLE, "0")
    lock = table_lock.hold_table(one.session, one.places)
    assert lock is not None
    one.table.refuse_lost = lock.refuse_lost
    at, tables = crash_points.at, ("target", "quarantine", "ledger")
    before = [one.log(table).newest() for table in tables]

    def lost(reached: str, batch: int, *more: str) -> None:
        if reached == point:
            lock.path.unlink()
        at(reached, batch, *more)

    monkeypatch.setattr(crash_points, "at", lost)
    try:
        with pytest.raises(RunStopped, match="LOCK_LOST"):
            one.batch(order("a", n=1), order("b", n="x"))
    finally:
        lock.release()
    assert [one.log(table).newest() - version for table, version in zip(tables, before, strict=True)] == [*added, 0]


@pytest.mark.slow
def test_existing_tables_are_kept_and_an_interrupted_creation_is_repeated(desk: MakeDesk) -> None:
    """Found by a chaos test: Delta does not treat a log without commits as a table, and refuses to create a table there."""
    one = desk()
    one.batch(order("a"))
    before = one.log().newest()
    writer.create_tables(one.session, one.contract, one.places)
    assert one.log().newest() == before
    creation = one.log().commit(0)
    assert creation.batch_commit is not None and creation.batch_commit.kind == "create" and creation.transactions == {}
    shutil.rmtree(one.places.checkpoints)
    for path in (one.places.target, one.places.quarantine, one.places.ledger):
        shutil.rmtree(path)
        (Path(path) / "_delta_log" / "_staged_commits").mkdir(parents=True)
        (Path(path) / "_delta_log" / f".{0:020}.json.0f2d.tmp").touch()
    one.table = one.open()
    one.batch(order("b"), "{")
    assert one.rows("id") == [("b",)]
    assert (len(one.quarantine()), len(one.accounts())) == (1, 1)
