"""The one module that commits: pair and mark, conflicts, and nothing that the next statement on the session would inherit (I1, I2, I3)."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.errors import Bug, RunStopped
from ingest.stream import commit
from ingest.stream.columns import target_fields
from ingest.stream.commit import AlreadyWritten, Outcome, Written
from ingest.stream.decode import Decoder, Source
from ingest.stream.mark import Mark
from tests.integration.desk import TOPIC_ID, Desk
from tests.integration.lane import order
from tests.integration.records import KAFKA_TIME

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
CONFS = (commit.APP_ID, commit.VERSION, commit.METADATA)


def rows(desk: Desk, *values: str) -> DataFrame:
    """Rows of the target's columns, as a batch offers them to the MERGE."""
    events = Decoder(desk.contract).decode(desk.frame(*values), Source(desk.topic, TOPIC_ID, KAFKA_TIME))
    return events.select(*(field.name for field in target_fields(desk.contract)))


def merge(desk: Desk, source: DataFrame, mark: Mark) -> Outcome:
    return commit.merge_target(source, desk.contract, desk.table.ledger.target_log, mark, {})


def left_set(session: SparkSession) -> list[str]:
    return [key for key in CONFS if session.conf.get(key, None) is not None]


def append_elsewhere(session: SparkSession, path: Path) -> int:
    """How many rows an ordinary append to a table of somebody else's adds."""
    frame = session.createDataFrame([(1,)], "n int")
    for _ in range(2):
        frame.write.format("delta").mode("append").save(str(path))
    return session.read.format("delta").load(str(path)).count()


def test_a_commit_holds_pair_and_mark_and_a_second_try_finds_it(desk: MakeDesk) -> None:
    """I1, I2"""
    one = desk()
    source, mark = rows(one, order("a"), order("b")), one.mark(0, 0, 2, read=2)
    first = merge(one, source, mark)
    assert isinstance(first, Written)
    assert first.commit.mark == mark
    assert first.commit.transactions == {mark.app_id("target"): 0}
    second = merge(one, source, mark)
    assert isinstance(second, AlreadyWritten)
    assert second.commit.version == first.commit.version == one.table.ledger.target_log.versions()[-1]


def test_a_pair_that_stands_for_other_ranges_is_never_taken_for_a_skip(desk: MakeDesk) -> None:
    """I2: Delta would skip it in silence and its rows would be lost."""
    one = desk()
    merge(one, rows(one, order("a")), one.mark(0, 0, 1))
    with pytest.raises(RunStopped, match="BATCH_DIFFERS") as stopped:
        merge(one, rows(one, order("b")), one.mark(0, 0, 7))
    assert "0:[0,1)" in stopped.value.found and "0:[0,7)" in stopped.value.found
    assert one.rows("id") == [("a",)]
    assert left_set(one.session) == []


def test_after_a_commit_an_append_to_another_table_is_not_dropped(desk: MakeDesk, tmp_path: Path) -> None:
    """Left set, the pair would let Delta skip the next append on the session in silence."""
    one = desk()
    merge(one, rows(one, order("a")), one.mark(0))
    assert left_set(one.session) == []
    assert append_elsewhere(one.session, tmp_path / "other") == 2


def test_after_a_failed_commit_nothing_is_left_set_either_and_nothing_was_written(desk: MakeDesk, tmp_path: Path) -> None:
    """I1: a commit carries its pair and mark, or it does not happen."""
    one = desk({"n": "INT"})
    failing = rows(one, order("a", n=1)).withColumn("n", F.raise_error(F.lit("the disk is full")).cast("int"))
    with pytest.raises(Exception, match="the disk is full"):
        merge(one, failing, one.mark(0))
    assert left_set(one.session) == []
    assert one.table.ledger.target_log.versions() == [0]
    assert append_elsewhere(one.session, tmp_path / "other") == 2
    assert isinstance(merge(one, rows(one, order("a", n=1)), one.mark(0)), Written)


def test_a_merge_without_the_pair_still_adds_no_row_twice_and_is_noticed(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """I3: the MERGE itself keeps an event id once; I1: a commit without its pair is none of ours."""

    @contextlib.contextmanager
    def no_pair(*_: Any) -> Iterator[None]:
        yield

    one = desk()
    merge(one, rows(one, order("a"), order("b")), one.mark(0, 0, 2))
    monkeypatch.setattr(commit, "_pair", no_pair)
    with pytest.raises(Bug, match="COMMIT_MISSING"):
        merge(one, rows(one, order("b"), order("c"), order("a")), one.mark(1, 2, 5))
    assert sorted(one.rows("id")) == [("a",), ("b",), ("c",)]


class Gate:
    """Holds a MERGE after it has read the table's version: `somebody` acts, then it may go on."""

    def __init__(self, folder: Path, somebody: Callable[[], Any]) -> None:
        self._reached, self._open = folder / "reached", folder / "open"
        self._thread = threading.Thread(target=self._let_through, args=(somebody,))
        self._thread.start()

    def _let_through(self, somebody: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while not self._reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        somebody()
        self._open.touch()

    def behind(self, source: DataFrame) -> DataFrame:
        """`source`, whose rows come when the gate is open."""
        reached, opened = str(self._reached), str(self._open)

        def wait(value: str) -> str:
            Path(reached).touch()
            for _ in range(6000):
                if Path(opened).exists():
                    break
                time.sleep(0.01)
            return value

        # One task only: two would leave no room for the statement of somebody else.
        return source.coalesce(1).withColumn("id", F.udf(wait)("id"))


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE delta.`{}` SET n = 7 WHERE id = 'a'", id="update"),
        pytest.param("DELETE FROM delta.`{}` WHERE id = 'b'", id="delete", marks=pytest.mark.slow),
        pytest.param("OPTIMIZE delta.`{}`", id="optimize", marks=pytest.mark.slow),
        pytest.param("VACUUM delta.`{}`", id="vacuum", marks=pytest.mark.slow),
    ],
)
def test_a_commit_of_somebody_else_in_between_is_met_by_reading_the_table_anew(desk: MakeDesk, tmp_path: Path, statement: str) -> None:
    """I3: the conflict is retried; the row is there once and the pair is in one commit."""
    one = desk({"n": "INT"})
    for number, name in enumerate("ab"):
        merge(one, rows(one, order(name, n=1)), one.mark(number, number, number + 1))
    stranger = one.session.newSession()  # on ours the statement would carry our pair
    gate = Gate(tmp_path, lambda: stranger.sql(statement.format(one.places.target)).collect())
    mark = one.mark(2, 2, 4)
    outcome = merge(one, gate.behind(rows(one, order("a", n=9), order("c", n=1))), mark)
    assert isinstance(outcome, Written)
    log = one.table.ledger.target_log
    # VACUUM deletes no file that is younger than its retention, and says so in the log when it begins and ends.
    theirs = ["VACUUM START", "VACUUM END"] if "VACUUM" in statement else [statement.partition(" ")[0]]
    assert [c.operation for c in log.since(2)] == [*theirs, "MERGE"]
    assert [c.version for c in log.since(0) if mark.app_id("target") in c.transactions and c.mark == mark] == [3 + len(theirs)]
    names = [name for (name,) in one.rows("id")]
    assert sorted(names) == (["a", "c"] if "DELETE" in statement else ["a", "b", "c"])


def test_a_store_that_reports_an_error_after_it_has_committed_is_believed_by_its_log(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: an unknown outcome is looked up, not guessed."""
    one = desk()
    executed = commit._executed

    def lose_the_answer(result: Any) -> bool:
        executed(result)
        raise TimeoutError("the answer was lost")

    monkeypatch.setattr(commit, "_executed", lose_the_answer)
    outcome = merge(one, rows(one, order("a")), one.mark(0))
    assert isinstance(outcome, Written)
    assert one.rows("id") == [("a",)]


def test_tables_are_left_as_they_are_when_they_exist(desk: MakeDesk) -> None:
    """A start creates what is missing and touches nothing else; the creation is no batch."""
    one = desk()
    merge(one, rows(one, order("a")), one.mark(0))
    commit.create_tables(one.session, one.contract, one.places)
    assert one.table.ledger.target_log.versions() == [0, 1]
    creation = one.table.ledger.target_log.commit(0)
    assert creation.mark is None and creation.transactions == {} and '"kind": "created"' in (creation.user_metadata or "")


def test_a_creation_that_was_killed_before_its_commit_is_made_again(desk: MakeDesk) -> None:
    """Found by chaos: Delta takes a log without a commit for no table, and refuses to make one there."""
    one = desk()
    for path in (one.places.target, one.places.quarantine, one.places.ledger):
        shutil.rmtree(path)
        (Path(path) / "_delta_log" / "_staged_commits").mkdir(parents=True)
        (Path(path) / "_delta_log" / f".{0:020}.json.0f2d.tmp").touch()
    commit.create_tables(one.session, one.contract, one.places)
    one.table = one.open()
    one.batch(order("a"), "{")
    assert one.rows("id") == [("a",)]
    assert (len(one.quarantine()), len(one.ledger())) == (1, 1)
