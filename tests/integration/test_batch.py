"""Batches on a real topic: one commit each (I1), quarantine before target (I7), every record accounted for (I4, I5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable as Reader
from deltalake import QueryBuilder
from kafka.admin import NewPartitions
from pyspark.sql import DataFrame, Row, SparkSession

from ingest.batch.batch import BatchReport, Table, process
from ingest.batch.direct import process_direct
from ingest.decode.rule_check import check_rules
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.integration.lane import Lane, Record, order
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def test_every_batch_is_one_target_commit_with_transaction_id_and_ranges_even_without_rows(lane: MakeLane) -> None:
    """I1, I4, I7: batches with rows, only duplicates, only quarantine or only an aborted transaction each have one commit and balance."""
    one = lane({"n": "INT"})
    one.send(order("a"), order("b"), order("a"))
    one.run()
    one.send(order("b"), order("a"), "no JSON", Record(None, key=b"k"))
    one.run(max_records=2)
    one.transaction(order("never"), commit=False)
    one.run()
    one.transaction(order("c"), "{")
    one.run()

    commits = one.batches()
    assert [str(batch_commit.id) for _, batch_commit in commits] == ["1/2", "2/2", "2/3", "3/2", "4/2"]
    assert [commit.transactions for commit, _ in commits] == [
        {"oncelake/t/events": batch_commit.id.txn_version} for _, batch_commit in commits
    ]
    assert [[(r.start, r.end) for r in batch_commit.ranges] for _, batch_commit in commits] == [
        [(0, 3)],
        [(3, 5)],
        [(5, 7)],
        [(7, 9)],
        [(9, 12)],
    ]
    assert {(batch_commit.topic(0).id != "", batch_commit.contract_hash) for _, batch_commit in commits} == {(True, one.contract.hash)}
    assert len({batch_commit.writer for _, batch_commit in commits}) == 4, "one writer per start"
    assert one.ids() == ["a", "b", "c"]
    # read, inserted, present, duplicate, quarantined, gap
    batches = [(3, 2, 0, 1, 0, 0), (2, 0, 2, 0, 0, 0), (2, 0, 0, 0, 2, 0), (0, 0, 0, 0, 0, 2), (2, 1, 0, 0, 1, 1)]
    assert one.accounts() == batches
    # I7: a batch commits to the quarantine before it commits to the target.
    target_at = {batch_commit.id: commit.committed_at for commit, batch_commit in commits}
    quarantined = {batch_commit.id: commit.committed_at for commit, batch_commit in one.batches("quarantine")}
    assert [str(id) for id in quarantined] == ["2/3", "4/2"]
    assert all(quarantined[id] < target_at[id] for id in quarantined)


@pytest.mark.slow
def test_the_ledger_equals_a_recount_of_the_tables_over_many_batches_and_partitions(lane: MakeLane) -> None:
    """I4: three partitions with committed and aborted transactions and single records. `ingest verify` does the recount."""
    one = lane({"n": "INT"}, partitions=3)
    sent = 0
    for round_number in range(3):
        records = [Record(order(f"{(round_number * 7 + n) % 23}", n=n), partition=n % 3) for n in range(12)]
        one.transaction(*records, Record("{", partition=round_number))
        one.transaction(Record(order("aborted"), partition=0), commit=False)
        one.send(Record(order(f"late-{round_number}"), partition=2))
        sent += len(records) + 2
    one.run(max_records=11)
    one.balanced()
    total = one.verified().total
    assert total.batches >= 4 and total.read == sent and total.gap > 0
    assert one.target().where("id = 'aborted'").count() == 0


def test_quarantine_keeps_bytes_headers_position_and_reason_exactly(lane: MakeLane) -> None:
    """I5"""
    one = lane({"n": "INT"}, partitions=2)
    headers = [("trace", b"\xff\x00"), ("trace", b""), ("é", b"x")]
    one.send(Record(b"\xff\xfe{", 1, b"\x00key", headers), Record(None, 1, b"t"), Record(order("a", n="five"), 0, b"k"), Record(b"", 0))
    one.run()
    rows = one.quarantine().orderBy("partition", "offset").collect()
    kept = [(r["partition"], r["offset"], r["key"], r["value"], r["reason_code"], r["reason_detail"], r["event_id"]) for r in rows]
    assert kept == [
        (0, 0, b"k", order("a", n="five").encode(), "wrong_type", "n", "a"),
        (0, 1, None, b"", "empty", "the value has no bytes", None),
        (1, 0, b"\x00key", b"\xff\xfe{", "not_utf8", "it begins with a byte order mark (UTF-16)", None),
        (1, 1, b"t", None, "tombstone", "the value is null", None),
    ]
    assert rows[2]["headers"] == [Row(key=name, value=bytearray(value)) for name, value in headers]
    source = one.session.read.format("kafka").options(
        **KafkaOptions(one.bootstrap_servers).for_spark(), subscribe=one.contract.source.topic
    )
    sent = source.load().select("partition", "offset", "timestamp").collect()
    assert sorted((r["partition"], r["offset"], r["kafka_timestamp"]) for r in rows) == sorted(map(tuple, sent))
    assert {r["state"] for r in rows} == {"open"}
    assert [len(commit.added) for commit, _ in one.batches("quarantine")] == [1], "a small batch leaves one file, even for two partitions"
    topic = one.batches()[0][1].topic(0)
    assert {(r["topic"], r["topic_id"], r["epoch"], r["batch"]) for r in rows} == {(topic.name, topic.id, 1, 2)}
    assert one.target().count() == 0


@pytest.mark.slow
def test_a_batch_over_the_quarantine_limit_stops_the_run_and_writes_nothing(lane: MakeLane) -> None:
    """I5: the limit applies to batches of at least min_records. With a raised limit, the same batch is accepted."""
    one = lane(quarantine={"max_share": 0.25, "min_records": 8})
    one.send("{", "{", order("a"))  # too small to judge
    one.run()
    one.send(*["{"] * 2, *[order(f"b{n}") for n in range(6)])  # exactly a quarter
    one.run()
    before, kept = one.ids(), one.quarantine().count()
    one.send(*["{"] * 3, *[order(f"c{n}") for n in range(6)])
    error = one.stopped()
    assert isinstance(error, RunStopped)
    assert (error.code, error.exit_code) == ("QUARANTINE_LIMIT", 5)
    assert "3 of the 9 records of batch 2" in error.found and "0:[11,20)" in error.found
    assert (one.ids(), one.quarantine().count()) == (before, kept)
    one.contract = one.contract.model_copy(update={"quarantine": one.contract.quarantine.model_copy(update={"max_share": 0.5})})
    one.run()
    assert len(one.ids()) == 13 and one.quarantine().count() == 7


@pytest.mark.slow
def test_a_partition_added_later_is_read_from_its_first_record(lane: MakeLane) -> None:
    """I1: its range starts at offset 0."""
    one = lane()
    one.send(order("a"))
    one.run()
    client = one.admin()
    client.create_partitions({one.contract.source.topic: NewPartitions(total_count=2)})
    client.close()
    one.send(Record(order("b"), 1), Record(order("c"), 1))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    assert [str(r) for r in one.batches()[-1][1].ranges] == ["0:[1,1)", "1:[0,2)"]


@pytest.mark.slow
def test_deltalake_reads_tables_with_columns_of_every_type_and_both_layouts(lane: MakeLane) -> None:
    """The tables use only features that a second implementation can read. Their isolation level is Serializable."""
    columns = {"d": "DECIMAL(18,2)", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "day": "DATE!", "m": "MAP<STRING, STRING>", "b": "BINARY"}
    columns |= {"s": "STRUCT<a: ARRAY<STRUCT<x: BIGINT>>, b: BOOLEAN>", "f": "FLOAT", "t": "TINYINT"}
    value = order("a", d="1.50", at="2024-05-01T10:00:00Z", local="2024-05-01T10:00:00", day="2024-05-01", m={"k": "v"}, b="AQ==", z=1)
    for layout in ({"partition_by": ["day"]}, {"cluster_by": ["id", "day"]}):
        one = lane(columns, layout=layout, unknown_fields="keep", event_time="at")
        one.folder = one.folder / next(iter(layout))
        one = Lane(one.session, one.contract, one.bootstrap_servers, one.folder)
        one.send(value, "{", value)
        one.run()
        assert one.accounts() == [(3, 1, 0, 1, 1, 0)]
        for table, rows in (("target", 1), ("quarantine", 1), ("ledger", 2)):
            reader = Reader(f"{one.places.root}/{table}")
            assert QueryBuilder().register("t", reader).execute("SELECT * FROM t").read_all().num_rows == rows
            assert reader.metadata().configuration["delta.isolationLevel"] == "Serializable"
            assert "delta.setTransactionRetentionDuration" not in reader.metadata().configuration


@pytest.mark.parametrize("check", ["nosuchfunction(n) > 0", "n + 1"])
def test_a_rule_that_spark_cannot_evaluate_is_refused_before_the_first_batch(lane: MakeLane, check: str) -> None:
    """The error names the rule, no batch is planned, and no table is written."""
    one = lane({"n": "INT"}, rules=[{"name": "odd", "check": check}])
    one.direct = False
    one.send(order("a", n=1))
    error = one.stopped()
    assert (error.code, error.exit_code) == ("RULE_INVALID", 2)
    assert "odd" in error.found and check in error.found
    assert not one.log().exists()


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("n > (n -> n)", "unresolved"),
        ("s RLIKE '('", "Unclosed group"),
        ("s RLIKE concat('(', 'a')", "Unclosed group"),
        ("n > 5 AND regexp_extract(s, '[', 1) = 'a'", "Unclosed character class"),
        ("regexp_count(s, '(') > 0", "Unclosed group"),
        ("regexp_replace(s, '*', '') = s", "Dangling meta character"),
        ("size(split(s, '(')) > 1", "Unclosed group"),
        ("exists(a, x -> x RLIKE '(')", "Unclosed group"),
        (r"s LIKE 'a\\b'", "INVALID_FORMAT"),
        ("date_format(at, 'bbbb') = 'x'", "INVALID_DATETIME_PATTERN"),
    ],
)
def test_a_rule_that_would_fail_in_every_batch_is_refused_at_the_start(spark: SparkSession, check: str, says: str) -> None:
    """Spark analyses it without an error, or with one that PySpark does not know."""
    columns = {"n": "INT", "s": "STRING", "a": "ARRAY<STRING>", "at": "TIMESTAMP"}
    with pytest.raises(InvalidInput) as caught:
        check_rules(spark, contract(columns, rules=[{"name": "odd", "check": check}]))
    assert caught.value.code == "RULE_INVALID"
    assert "t.events" in caught.value.found and "the row rule odd" in caught.value.found and says.lower() in caught.value.found.lower()
    good = ["s RLIKE '^(a|b)'", "s RLIKE s", "exists(a, x -> x LIKE 'a%')", "date_format(at, 'yyyy') > '2000'", "split(s, ',')[0] = 'a'"]
    check_rules(spark, contract(columns, rules=[{"name": f"r{at}", "check": each} for at, each in enumerate(good)]))


def test_a_rule_that_casts_a_decimal_to_a_timestamp_is_refused(spark: SparkSession) -> None:
    """Spark keeps the lowest 64 bits of the microseconds: one of these two would pass for a time of our days or beyond."""
    numbers = "CAST('99999999999999999999' AS DECIMAL(20,0)) d UNION SELECT CAST('-99999999999999999999' AS DECIMAL(20,0))"
    years = {row[0] for row in spark.sql(f"SELECT year(CAST(d AS TIMESTAMP)) FROM (SELECT {numbers})").collect()}
    assert any(abs(year) < 300_000 for year in years), years
    columns = {"d": "DECIMAL(20,0)", "at": "TIMESTAMP", "ds": "ARRAY<DECIMAL(20,0)>"}
    for check in ("CAST(d AS TIMESTAMP) > at", "exists(ds, x -> to_timestamp(x) > at)", "CAST(d * 2 AS TIMESTAMP) IS NULL"):
        with pytest.raises(InvalidInput, match=r"RULE_INVALID.*the row rule odd .* casts a DECIMAL to TIMESTAMP"):
            check_rules(spark, contract(columns, rules=[{"name": "odd", "check": check}]))
    check_rules(spark, contract(columns, rules=[{"name": "even", "check": "CAST(CAST(d AS DOUBLE) AS TIMESTAMP) > at"}]))


CHANGING = {
    "at > concat('no', 'w')": "'now'",
    "at > concat(' ', upper('to'), 'DAY utc')": "' TODAY utc'",
    "CAST(reverse('yadot') AS DATE) > DATE '2024-01-01'": "'today'",
    "to_date(CASE WHEN true THEN 'yester' || 'day' END) < DATE '2024-01-01'": "'yesterday'",
    "to_timestamp(replace('tXmorrow', 'X', 'o')) > at": "'tomorrow'",
    "local > CAST(X'6e6f77' AS STRING)": "'now'",
    "n + length(try_to_timestamp('no' || 'w')) > 0": "'now'",
}


def test_a_rule_that_depends_on_the_current_time_is_refused_however_it_is_written(spark: SparkSession) -> None:
    """I9: Spark reads some texts as the current time, even if an expression assembles them. A re-read would decide differently."""
    columns = {"n": "INT", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "s": "STRING"}
    for check, text in CHANGING.items():
        with pytest.raises(InvalidInput) as caught:
            check_rules(spark, contract(columns, rules=[{"name": "odd", "check": check}]))
        assert caught.value.code == "RULE_INVALID"
        assert "odd" in caught.value.found and f"casts {text} to a time" in caught.value.found
    good = ["at > concat('2024-01-01', ' 00:00:00Z')", "at > 'epoch'", "s = concat('no', 'w')", "s <> 'now' OR at > CAST(s AS TIMESTAMP)"]
    good += ["concat('no', 'w') = s", "to_date(s) > to_date('2024-' || '01-01')", "CAST('2024-01-01' AS TIMESTAMP_NTZ) < local"]
    check_rules(spark, contract(columns, rules=[{"name": f"r{at}", "check": check} for at, check in enumerate(good)]))


@pytest.mark.slow
def test_records_that_expire_between_plan_and_read_stop_the_batch_with_nothing_written(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4, I5: a batch must not be committed without planned records that Kafka has meanwhile deleted."""
    one = lane({"n": "INT"})
    one.send(order("a"))
    one.run()
    one.send(*(order(name) for name in "bcd"))

    def expired_meanwhile(records: DataFrame, number: int, table: Table, *writer: DirectWriter) -> BatchReport:
        one.expire(before=3)
        return process_direct(records, number, table, *writer) if writer else process(records, number, table)

    for name in ("process", "process_direct"):
        monkeypatch.setattr(f"ingest.run.table_query.{name}", expired_meanwhile)
    assert one.stopped().code == "RECORDS_EXPIRED", "reported by the epoch that the run opens after the failed batch"
    assert len(one.batches()) == 1 and one.ids() == ["a"]
    monkeypatch.undo()
    assert "partition 0 [1, 3): 2 offsets" in one.refused("RECORDS_EXPIRED").found
