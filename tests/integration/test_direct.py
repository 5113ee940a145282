"""The direct writer on a real topic: the promises of a batch, and tables that Spark and deltalake read alike."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ingest.batch.outputs import SMALL_ROWS
from ingest.run.table_query import TableQuery
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.integration.lane import Lane, Record, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
NESTED = {"n": "DECIMAL(10,2)", "at": "TIMESTAMP", "day": "DATE", "b": "BINARY", "f": "DOUBLE"}
NESTED |= {"items": "ARRAY<STRUCT<sku: STRING, m: MAP<STRING, INT>>>", "r": "FLOAT", "ok": "BOOLEAN", "t": "TINYINT"}
NESTED |= {"local": "TIMESTAMP_NTZ"}


def direct(lane: MakeLane, *arguments: Any, **more: Any) -> Lane:
    one = lane(*arguments, **more)
    one.direct = True
    return one


def test_every_batch_is_one_target_commit_with_transaction_id_and_ranges_even_without_rows(lane: MakeLane) -> None:
    """I1, I4, I7: batches with rows, only duplicates, only quarantine or only an aborted transaction each have one commit and balance."""
    one = direct(lane, {"n": "INT"})
    one.send(order("a"), order("b"), order("a"))
    one.run()
    one.send(order("b"), order("a"), "no JSON", Record(None, key=b"k", headers=[("h", b"\xff")]))
    one.run(max_records=2)
    one.transaction(order("never"), commit=False)
    one.run()
    one.transaction(order("c"), "{")
    one.run()
    commits = one.batches()
    assert [str(batch_commit.id) for _, batch_commit in commits] == ["1/2", "2/2", "2/3", "3/2", "4/2"]
    assert all(commit.transactions == {"oncelake/t/events": batch_commit.id.txn_version} for commit, batch_commit in commits)
    assert [(r.start, r.end) for _, batch_commit in commits for r in batch_commit.ranges] == [(0, 3), (3, 5), (5, 7), (7, 9), (9, 12)]
    assert one.ids() == ["a", "b", "c"]
    assert one.accounts() == [(3, 2, 0, 1, 0, 0), (2, 0, 2, 0, 0, 0), (2, 0, 0, 0, 2, 0), (0, 0, 0, 0, 0, 2), (2, 1, 0, 0, 1, 1)]
    (tombstone,) = one.quarantine().where("reason_code = 'tombstone'").collect()
    assert (tombstone["key"], [tuple(each) for each in tombstone["headers"]]) == (b"k", [("h", b"\xff")])
    target_at = {batch_commit.id: commit.committed_at for commit, batch_commit in commits}
    assert all(commit.committed_at < target_at[each.id] for commit, each in one.batches("quarantine"))
    one.balanced()
    history = one.session.sql(f"DESCRIBE HISTORY delta.`{one.places.target}`").select("operation").collect()
    assert {row["operation"] for row in history} == {"CREATE TABLE", "WRITE", "MERGE"}


def test_values_of_every_type_are_read_alike_by_spark_and_deltalake(lane: MakeLane) -> None:
    one = direct(lane, NESTED)
    one.send(
        order("a", n="1.50", at="2026-01-02T03:04:05.000006Z", day="1500-03-01", b="AP8=", f=-0.5, items=[{"sku": "x", "m": {"k": 1}}])
    )
    one.send(order("b"))
    one.run()
    by_spark = one.target().orderBy("id").toArrow()
    by_deltalake = DeltaTable(one.places.target).to_pyarrow_table().sort_by("id")
    assert by_spark.select(by_deltalake.column_names).to_pylist() == by_deltalake.to_pylist()
    row = by_deltalake.to_pylist()[0]
    assert (str(row["n"]), row["b"], row["items"][0]["m"]) == ("1.50", b"\x00\xff", [("k", 1)])
    assert [row["id"] for row in one.target().where("at > timestamp'2026-01-01' AND _offset >= 0").collect()] == ["a"]


def test_copies_with_another_payload_go_to_quarantine_with_their_bytes(lane: MakeLane) -> None:
    """I3: the least position wins inside a batch."""
    one = direct(lane, {"n": "INT"}, partitions=2)
    one.send(Record(order("a", n=1), 1), Record(order("a", n=2), 0, b"key"), Record(order("a", n=2), 1))
    one.run()
    assert [(row["n"], row["_partition"]) for row in one.target().collect()] == [(2, 0)]
    (odd,) = one.quarantine().collect()
    assert (odd["reason_code"], odd["partition"], odd["offset"]) == ("conflicting_duplicate", 1, 0)
    assert json.loads(odd["value"]) == {"id": "a", "n": 1} and "partition 0 offset 0" in odd["reason_detail"]
    one.balanced()


def test_a_conflicting_copy_that_kafka_has_removed_meanwhile_is_kept_without_its_bytes(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction may remove it between the two reads. What the commit counts, the quarantine has (I4, I5)."""
    from ingest.batch.direct import _Batch

    read_again = _Batch._conflicting

    def after_compaction(batch: _Batch, staged: Any) -> Any:
        batch._records = batch._records.where("offset < 0")
        return read_again(batch, staged)

    one = direct(lane, {"n": "INT"})
    monkeypatch.setattr(_Batch, "_conflicting", after_compaction)
    one.send(order("a", n=1), order("a", n=2))
    one.run()
    (odd,) = one.quarantine().collect()
    assert (odd["reason_code"], odd["offset"], odd["value"]) == ("conflicting_duplicate", 1, None)
    one.balanced()


def test_large_tasks_write_files_of_their_own_and_one_that_loses_rows_is_written_again(lane: MakeLane) -> None:
    one = direct(lane, {"n": "INT"}, partitions=2)
    one.send(order(7))  # not text: to quarantine
    many = SMALL_ROWS + 10
    _send_many(one, [order(f"{n:06}", n=n) for n in range(many)], 0)
    _send_many(one, [order(f"{n:06}", n=n) for n in range(many - 5, 2 * many)], 1)
    (report,) = one.run()
    assert (report.inserted, report.duplicate, report.quarantined) == (2 * many, 5, 1)
    files = one.batches()[-1][0].added
    assert len(files) == 2 and sum(each.records or 0 for each in files) == 2 * many
    there = {path.name for path in Path(one.places.target).glob("*.parquet")}
    assert there == {each.path for each in files}, "a staged file that was written again is removed"
    assert all(pq.read_metadata(Path(one.places.target) / each.path).num_rows == each.records for each in files)
    one.balanced()


def test_another_engines_rows_count_also_those_that_come_between_look_and_commit(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exclusive put fails, and the ids are compared again with the newer snapshot: no id twice."""
    from ingest.batch.staged import Staged

    one = direct(lane, {"n": "INT"})
    one.send(order("a"))
    one.run()
    insert, new_files, done = one.target().where("id = 'a'"), Staged.new_files, threading.Event()

    def meanwhile(self: Staged, target: Any) -> Any:
        found = new_files(self, target)
        if not done.is_set():
            insert.selectExpr("'b' AS id", "* EXCEPT (id)").write.format("delta").mode("append").save(one.places.target)
            done.set()
        return found

    monkeypatch.setattr(Staged, "new_files", meanwhile)
    one.send(order("b"), order("c"))
    (report,) = one.run()
    assert (report.inserted, report.duplicate) == (1, 1) and one.ids() == ["a", "b", "c"]


def test_writers_may_take_turns_on_a_table(lane: MakeLane) -> None:
    one = lane({"n": "INT"})
    for number, who in enumerate((False, True, False, True)):
        one.direct = who
        one.send(order(f"r{number}"), order("r0"), "{")
        one.run()
        one.forget_tables()
    assert one.ids() == ["r0", "r1", "r2", "r3"]
    one.balanced()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE", "DECIMAL(20,3)", "BINARY"])
def test_an_event_id_of_any_type_is_found_in_the_files_of_spark(lane: MakeLane, kind: str) -> None:
    """Spark's statistics cut times to the millisecond, and its files may store them as INT96."""
    values = {"TIMESTAMP": "0001-01-01T00:00:00.000006Z", "DATE": "1500-01-01", "DECIMAL(20,3)": "0.100", "BINARY": "AP8="}
    one = lane({"k": f"{kind}!", "n": "INT!"}, event_id=("k", "n"))
    for who in (False, True, False):
        one.direct = who
        one.send(json.dumps({"k": values[kind], "n": 1}))
        one.run()
        one.forget_tables()
    assert one.target().count() == 1
    one.balanced()


def test_a_fenced_run_stops_at_its_next_commit(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """I8, without any lock between the two: the commit itself fences."""
    from ingest.batch.staged import Staged
    from ingest.delta.batch_commit import FENCE, BatchCommit, BatchId, Fence, Snapshot, Snapshots
    from ingest.delta.direct_writer import DirectWriter

    one = direct(lane, {"n": "INT"})
    one.send(order("a"))
    one.run()
    new_files = Staged.new_files

    def overtaken(self: Staged, target: Any) -> Any:
        nowhere = Snapshots(Snapshot("", 0, ""), Snapshot("", 0, ""))
        later = BatchCommit(Fence(), one.places.pipeline, one.places.table, BatchId(9, FENCE), "another", nowhere)
        DirectWriter().fence(one.log(), later)
        return new_files(self, target)

    monkeypatch.setattr(Staged, "new_files", overtaken)
    one.send(order("b"))
    error = one.stopped()
    assert isinstance(error, RunStopped) and error.code == "FENCED" and one.ids() == ["a"]
    there = {path.name for path in Path(one.places.target).glob("*.parquet")}
    assert there == {each.path for commit, _ in one.batches() for each in commit.added}, "surely nothing was stored: no file stays"


def test_spark_reads_and_continues_a_table_through_the_checkpoint_of_the_direct_writer(lane: MakeLane) -> None:
    """Nobody else writes checkpoints of a table that only the direct writer writes."""
    from ingest.delta.direct_writer import NOTHING, DirectWriter
    from ingest.delta.log_checkpoint import BEHIND_MAX
    from ingest.repair.retention import about

    one = direct(lane, {"n": "INT", "d": "DECIMAL(20,3)"})
    one.send(order("a", n=1, d="1.5"), order("b", n=2))
    one.run()
    log, writer = Path(one.places.target) / "_delta_log", DirectWriter()
    for _ in range(120):
        writer.unfenced(one.places.target, about(one.places), lambda _: (NOTHING, ()))
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    at = int(checkpoint.name[:20])
    assert at >= BEHIND_MAX - 1
    for path in log.glob("*.json"):
        if int(path.name[:20]) <= at:
            path.unlink()
    one.forget_tables()
    assert one.ids() == ["a", "b"] and [row["id"] for row in one.target().where("n = 2").collect()] == ["b"]
    assert DeltaTable(one.places.target).to_pyarrow_table().num_rows == 2
    for who in (True, False):
        one.direct = who
        one.send(order("b", n=2), order(f"by {who}"))
        (report,) = one.run()
        assert (report.inserted, report.duplicate) == (1, 1)
        one.forget_tables()
    assert one.ids() == ["a", "b", "by False", "by True"]
    one.balanced()


def test_the_end_of_once_writes_checkpoints_of_the_logs(lane: MakeLane) -> None:
    one = direct(lane, {"n": "INT"})
    for number in range(5):
        one.send(order(f"{number}a"), order(f"{number}b"), order(f"{number}c"))
        one.run(max_records=1)
    behind = {table: one.log(table).commits_after_checkpoint() for table in ("target", "quarantine", "ledger")}
    assert max(behind.values()) <= 10 and list((Path(one.places.target) / "_delta_log").glob("*.checkpoint.parquet"))
    one.forget_tables()
    assert len(one.ids()) == 15
    one.balanced()


@pytest.mark.parametrize("harmless", [False, True])
def test_a_table_that_somebody_alters_during_a_run_is_judged_before_the_batch_is_staged(
    harmless: bool, lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I9: as a start judges it."""
    from ingest.batch import direct as batches

    one = direct(lane, {"n": "INT!"})
    one.send(order("a", n=1))
    one.run()
    staged: list[int] = []
    stage, source_options = batches._Batch.stage, TableQuery._source_options

    def altered(self: TableQuery, starts: Any, max_records: Any) -> dict[str, str]:  # between the start and the first batch
        one.sql("COMMENT ON TABLE {} IS 'by hand'" if harmless else "ALTER TABLE {} ALTER COLUMN n DROP NOT NULL")
        return source_options(self, starts, max_records)

    monkeypatch.setattr(TableQuery, "_source_options", altered)

    def counted(*words: Any) -> Any:
        staged.append(1)
        return stage(*words)

    monkeypatch.setattr(batches._Batch, "stage", counted)
    one.send(order("b", n=2))
    if harmless:
        one.run()
        assert staged and one.ids() == ["a", "b"]
        return
    error = one.stopped()
    assert error.code == "CONTRACT_CHANGED" and "n may be null in the table" in error.found
    assert not staged and one.ids() == ["a"]


def test_a_broken_rule_sends_a_record_to_quarantine_with_its_bytes(lane: MakeLane) -> None:
    one = direct(lane, {"n": "INT"}, rules=[{"name": "small", "check": "n < 5"}, {"name": "known", "check": "n >= 0 AND _offset < 9"}])
    one.send(order("a", n=1), order("b", n=7), order("c"), order("d", n=-1))
    one.run()
    found = one.quarantine().orderBy("offset").collect()
    assert one.ids() == ["a"] and [row["reason_detail"] for row in found] == ["small", "small", "known"]
    assert {row["reason_code"] for row in found} == {"broken_rule"} and json.loads(found[0]["value"]) == {"id": "b", "n": 7}
    assert [row["event_id"] for row in found] == ["b", "c", "d"]
    one.balanced()


def test_a_contract_that_it_does_not_know_yet_is_refused_before_anything_is_written(lane: MakeLane) -> None:
    one = direct(lane, {"n": "INT"}, rules=[{"name": "small", "check": "n < hash(id)"}])
    one.send(order("a"))
    error = one.stopped()
    assert isinstance(error, InvalidInput) and error.code == "DIRECT_UNFIT" and not Path(one.places.target).exists()


def _send_many(one: Lane, values: list[str], partition: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=one.bootstrap_servers, linger_ms=50)
    for value in values:
        producer.send(one.contract.source.topic, value.encode(), partition=partition)
    producer.flush()
    producer.close()


def test_a_table_that_needs_spark_from_now_on_is_written_by_spark_in_a_new_epoch(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `auto`: somebody switches on a feature that the direct writer does not know, while the run is open."""
    one = lane({"n": "INT"})
    one.auto = True
    one.send(order("a", n=1))
    one.run()
    source_options = TableQuery._source_options
    altered: list[int] = []

    def alter(self: TableQuery, starts: Any, max_records: Any) -> dict[str, str]:  # between the start and the first batch
        if not altered:
            altered.append(1)
            one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
        return source_options(self, starts, max_records)

    monkeypatch.setattr(TableQuery, "_source_options", alter)
    one.send(order("a", n=1), order("b", n=2), "{")
    reports = one.run()
    assert [(report.epoch, report.inserted, report.duplicate, report.quarantined) for report in reports] == [(3, 1, 1, 1)]
    assert one.ids() == ["a", "b"]
    commit, batch_commit = one.batches()[-1]  # behind it is the statement that says what it inserted
    assert commit.operation == "MERGE" and batch_commit.id.epoch == 3
    one.balanced()
