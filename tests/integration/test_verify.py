"""`ingest verify` counts the tables: it locates each kind of injected error, and has no findings for a correct table (I4)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.batch_commit import FIRST_BATCH
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import At, DataFusion, Spark
from ingest.delta.reachable import deletes
from ingest.delta.stored_rows import TARGET
from ingest.ledger.books import Books
from ingest.recovery.state_reader import read_start_state
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from ingest.verify.against_kafka import _removed_positions
from ingest.verify.count import TableRows
from ingest.verify.verdict import Verified, verify
from tests.integration.desk import Desk
from tests.integration.lane import order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
NO_BOOKS = Books(0, 0, ())


def filled(make: MakeDesk) -> Desk:
    """A desk with three batches: a, b and a poison record; b again and c; d."""
    one = make({"n": "INT"})
    one.batch(order("a"), order("b"), "{")
    one.batch(order("b"), order("c"))
    one.batch(order("d"))
    one.table.epoch.ledger.append()
    return one


def found(desk: Desk) -> Verified:
    """The result of both engines, which must be the same."""
    here, in_spark = (verify(engine, desk.contract, desk.places) for engine in (DataFusion(), Spark(desk.session)))
    assert replace(here, books=NO_BOOKS) == replace(in_spark, books=NO_BOOKS)  # a time has a zone in one engine only
    assert len(here.books.lines) == len(in_spark.books.lines)
    return here


def where(verified: Verified) -> set[tuple[str, int | None, int | None, int | None, int | None]]:
    return {(f.code, f.batch, f.partition, f.start_offset, f.end_offset) for f in verified.findings}


@pytest.mark.slow
def test_both_engines_find_deletes_a_lost_row_a_record_in_both_tables_and_a_changed_ledger(desk: MakeDesk) -> None:
    """I4, I7: on tables written by Spark. Each error alone is tested in tests/unit/verify/test_verdict.py and test_verify_deletes.py."""
    one = filled(desk)
    one.batch(order("e"), order("a"))
    result = found(one)
    t = result.total
    assert (t.offsets, t.read, t.inserted, t.present, t.duplicate, t.quarantined, t.gap) == (8, 8, 5, 2, 0, 1, 0)
    assert (result.findings, result.target, result.quarantine) == ((), TableRows(5, 0, 0, 0, 0, 0, 5), TableRows(1, 0, 0, 0, 0, 0, 1))
    assert result.unledgered == 1, "its counts come from the target's log"
    version = one.log().newest()
    one.session.sql(f"DELETE FROM delta.`{one.places.target}` WHERE id = 'a'")
    one.session.sql(f"RESTORE TABLE delta.`{one.places.target}` TO VERSION AS OF {version}")
    one.session.sql(f"DELETE FROM delta.`{one.places.target}` WHERE id IN ('a', 'd')")
    result = found(one)
    assert (result.findings, result.target.removed, result.target.found) == ((), 2, 3)
    one.target().where("id != 'c'").write.format("delta").mode("overwrite").save(one.places.target)
    lost = ("ROWS_DIFFER", 3, 0, 3, 5)
    assert where(found(one)) == {lost}
    one.session.sql(f"UPDATE delta.`{one.places.quarantine}` SET offset = 1")
    assert {f.code for f in found(one).findings} == {"ROWS_DIFFER", "QUARANTINE_DIFFERS", "IN_BOTH"}
    one.table.epoch.ledger.append()
    changed = "records_read = records_read + 1, present = present + 1 WHERE batch = 3 AND why = 'batch'"
    one.session.sql(f"UPDATE delta.`{one.places.ledger}` SET {changed}")
    assert where(found(one)) >= {lost, ("LEDGER_DIFFERS", 3, None, None, None)}


class BusyHere(DataFusion):
    """DataFusion, with another commit before each of its reads."""

    def __init__(self, commits: Iterable[Callable[[], object]]) -> None:
        self._commits = iter(commits)

    def stream(self, sql: str, **tables: At) -> Iterator[Any]:
        next(self._commits, lambda: None)()
        return super().stream(sql, **tables)


class BusySpark(Spark):
    """Spark, with another commit before each of its reads."""

    def __init__(self, session: SparkSession, commits: Iterable[Callable[[], object]]) -> None:
        super().__init__(session)
        self._commits = iter(commits)

    def frame(self, sql: str, **tables: At) -> DataFrame:
        next(self._commits, lambda: None)()
        return super().frame(sql, **tables)


@pytest.mark.slow
def test_commits_while_the_tables_are_read_cause_no_finding(desk: MakeDesk) -> None:
    """Before each read come a batch, an append to the ledger and a DELETE. Verify accounts for commits between its reads."""
    one = filled(desk)

    def batch(number: int) -> Callable[[], object]:
        def make() -> None:
            one.batch(order(f"new{number}"), "{", order("a"))
            one.table.epoch.ledger.append()
            one.session.sql(f"DELETE FROM delta.`{one.places.target}` WHERE id = 'new{number}'")

        return make

    for busy in (BusyHere(batch(number) for number in range(3)), BusySpark(one.session, (batch(number) for number in range(3, 6)))):
        assert verify(busy, one.contract, one.places).findings == ()
    assert found(one).findings == ()


@pytest.mark.slow
def test_a_duplicate_row_a_row_of_no_batch_and_a_lost_quarantined_record_are_found(desk: MakeDesk) -> None:
    """I3, I4, I5."""
    one = filled(desk)
    again = one.target().where("id = 'd'")
    again.write.format("delta").mode("append").save(one.places.target)
    result = found(one)
    assert {("ROWS_DIFFER", 4, 0, 5, 6), ("ROW_TWICE", None, None, None, None)} == where(result)
    assert any("the same event id" in f.what and "offset 5" in f.what for f in result.findings)
    stray = again.withColumn("id", F.lit("x")).withColumn("_offset", F.lit(99).cast("bigint"))
    stray.write.format("delta").mode("append").save(one.places.target)
    assert any(each.code == "ROWS_DIFFER" and "3 rows more" in each.what and "[99, 100)" in each.what for each in found(one).findings)
    stray.withColumn("id", F.lit("y")).withColumn("_batch", F.lit(77).cast("bigint")).write.format("delta").mode("append").save(
        one.places.target
    )
    assert "ROWS_OF_NO_BATCH" in {f.code for f in found(one).findings}
    records = one.session.read.format("delta").load(one.places.quarantine).where("false")
    records.write.format("delta").mode("overwrite").save(one.places.quarantine)
    assert ("QUARANTINE_DIFFERS", 2, 0, 0, 3) in where(found(one))


def test_a_loss_and_a_forgery_of_the_same_number_are_found(desk: MakeDesk) -> None:
    """I4: a row left by an overwrite, and another one has come with the same batch and partition. So the number of rows is right."""
    one = filled(desk)
    lost = one.target().where("id = 'c'")
    forged = {"id": lost.withColumn("id", F.lit("x")), "_offset": lost.withColumn("_offset", F.lit(2).cast("bigint"))}
    for name, row in forged.items():
        one.target().where("id <> 'c'").unionByName(row).write.format("delta").mode("overwrite").save(one.places.target)
        result = found(one)
        assert (result.target.found, result.target.put) == (4, 4)
        assert ("ROWS_DIFFER", 3, 0, 3, 5) in where(result), name
        one.session.sql(f"RESTORE TABLE delta.`{one.places.target}` TO VERSION AS OF {one.log().newest() - 1}")
        assert found(one).findings == ()
    record = one.session.read.format("delta").load(one.places.quarantine).withColumn("offset", F.lit(1).cast("bigint"))
    record.write.format("delta").mode("overwrite").save(one.places.quarantine)
    assert ("QUARANTINE_DIFFERS", 2, 0, 0, 3) in where(found(one))


@pytest.mark.slow
def test_after_a_kill_between_the_commits_records_are_uncommitted_until_the_next_start(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: quarantine is written first. Verify lists records of an interrupted batch as uncommitted, the next start rolls them back."""
    one = filled(desk)
    monkeypatch.setattr(crash_points, "_armed", crash_points.ArmedFault("after_quarantine", "raise", one.number + FIRST_BATCH))
    with pytest.raises(crash_points.InjectedFault):
        one.batch(order("e"), "{")
    monkeypatch.setattr(crash_points, "_armed", None)
    result = found(one)
    assert (result.findings, [each.records for each in result.uncommitted], result.quarantine.found) == ((), [1], 2)
    one.table = one.open()
    one.batch(order("e"), "{")
    result = found(one)
    assert (result.findings, result.uncommitted, result.quarantine.found) == ((), (), 2)


@pytest.mark.slow
def test_deleted_rows_whose_files_were_vacuumed_are_counted_by_the_deletes_own_metric(desk: MakeDesk) -> None:
    """I4: the positions of these rows are then unknown to verify --against-kafka."""
    one = filled(desk)
    one.session.sql(f"DELETE FROM delta.`{one.places.target}` WHERE id = 'a'")
    one.session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        one.session.sql(f"VACUUM delta.`{one.places.target}` RETAIN 0 HOURS").collect()
    finally:
        one.session.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    result = found(one)
    assert (result.findings, result.target.removed, result.target.found) == ((), 1, 3)
    deleted = list(deletes(one.log(), one.log().newest()))
    for engine in (DataFusion(), Spark(one.session)):
        assert _removed_positions(engine, one.places.target, TARGET, "true", deleted) == {}


@pytest.mark.slow
def test_binary_event_ids_that_are_not_text_are_distinguished(desk: MakeDesk) -> None:
    """I3, I4."""
    one = desk({"raw": "BINARY!"}, event_id=["raw"])
    one.batch(*(json.dumps({"id": name, "raw": base64.b64encode(raw).decode()}) for name, raw in (("a", b"\xff"), ("b", b"\xfe"))))
    one.table.epoch.ledger.append()
    one.target().write.format("delta").mode("append").save(one.places.target)
    messages = [finding.what for finding in found(one).findings if finding.code == "ROW_TWICE"]
    places = [f"partition 0 offset {offset}, partition 0 offset {offset}" for offset in (1, 0)]
    assert messages[:2] == [f"2 rows in the target have the same event id: {each}" for each in places]


@pytest.mark.slow
def test_a_ledger_with_a_missing_commit_is_refused_before_it_is_queried(desk: MakeDesk) -> None:
    """I6: by a start, status and verify."""
    one = filled(desk)
    one.batch(order("e"))
    one.table.epoch.ledger.append()
    log = Path(one.places.ledger) / "_delta_log"
    (log / f"{1:020}.json").unlink()
    for ask in (lambda: read_start_state(None, one.places, Logs.of(one.places), None), lambda: found(one)):
        with pytest.raises(Refused, match=r"LOG_TORN.*lacks the commit of version 1"):
            ask()
