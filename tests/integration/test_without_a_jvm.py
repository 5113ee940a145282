"""Verbs on tables that the direct writer can write: no JVM starts, and the tables and documents are those that Spark would have left."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.cli.seek import plan_row
from ingest.contract.definition import Contract
from ingest.delta import writer
from ingest.delta.delta_sql import DataFusion
from ingest.delta.posting import WHYS
from ingest.delta.table_writer import SparkWriter
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import current_states
from ingest.ledger.books import READ, read_books
from ingest.recovery.numbering import numbered
from ingest.recovery.state_reader import Broker
from ingest.repair.erasure import Erasure, erase
from ingest.repair.quarantine_replay import replay_quarantine, try_replay
from ingest.repair.selection import Selection
from ingest.repair.shadow import shadow_exists
from ingest.run.alter import alter, differences
from tests.integration.lane import Lane, Record, order
from tests.integration.test_commands import typed
from tests.integration.test_erase import PERSON, files_that_contain
from tests.integration.test_rebuild import fill, swap_in

pytestmark = [pytest.mark.integration, pytest.mark.slow]
MakeLane = Callable[..., Lane]
COLUMNS = {"n": "INT", "mail": "STRING"}
RULES = [{"name": "small", "check": "n < 100"}]
# What differs between two runs of the same commands: times, and the topic that a lane has for itself.
OTHERWISE = {"_ingested_at", "_kafka_timestamp", "kafka_timestamp", "state_changed_at", "topic", "topic_id", "contract_hash"}


class NoJava:
    """An environment whose Java notes that it was started, and fails."""

    def __init__(self, folder: Path) -> None:
        self.started = folder / "java-was-started"
        (java := folder / "java-home/bin/java").parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\ntouch '{self.started}'\nexit 1\n", encoding="utf-8")
        java.chmod(0o755)
        self.environment = {"JAVA_HOME": str(folder / "java-home"), "PATH": f"{java.parent}:{os.environ['PATH']}", "INGEST_WRITER": "auto"}

    def typed(self, one: Lane, *words: str) -> dict[str, Any]:
        """The table's part of the document of a command that must succeed without a JVM."""
        code, document = typed(one, *words, more=self.environment)
        assert not self.started.exists(), words
        assert (code, document["error"]) == (0, None), document
        (table,) = document["tables"]
        assert isinstance(table, dict)
        return table


@pytest.fixture
def no_java(tmp_path: Path) -> NoJava:
    return NoJava(tmp_path)


def two(lane: MakeLane, columns: dict[str, str], *records: Record | str, **more: Any) -> tuple[Lane, Lane]:
    """Two lanes that have read the same records."""
    both = lane(dict(columns), **more), lane(dict(columns), **more)
    for number, one in enumerate(both):
        one.folder = one.folder / str(number)
        one.places = replace(one.places, lake=str(one.folder / "lake"), checkpoints=str(one.folder / "checkpoints"))
        one.send(*records)
        one.run()
    return both


def pair(lane: MakeLane) -> tuple[Lane, Lane]:
    """Rows a and b; in quarantine c (a rule refuses it) and a record that is no JSON."""
    records = (order("a", n=1, mail=PERSON), order("b", n=2, mail="b"), order("c", n=200, mail=PERSON), "{")
    return two(lane, COLUMNS, *records, rules=RULES)


def tables(one: Lane) -> dict[str, list[tuple[str, ...]]]:
    """The rows of target and quarantine, without what differs between two runs, sorted, and the books."""

    def texts(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(f"{key}={value}" for key, value in row.items() if key not in OTHERWISE)

    found = {name: DeltaTable(f"{one.places.root}/{name}").to_pyarrow_table().to_pylist() for name in ("target", "quarantine")}
    books = read_books(DataFusion(), one.places)
    lines = (*books.batches, *books.replays, *books.of(*(why for why in WHYS if why not in (*READ, "replay"))))
    return {
        **{name: sorted(map(texts, rows)) for name, rows in found.items()},
        "books": [(line.of_table, str(line.posting)) for line in lines],
    }


def test_a_first_run_on_an_empty_topic_and_what_a_crash_has_left_when_nothing_is_to_be_read(lane: MakeLane, no_java: NoJava) -> None:
    """The tables are created, the first offsets committed, and the quarantine of an uncommitted batch is rolled back."""
    one = lane({"n": "INT"})
    row = no_java.typed(one, "run", "--once")
    assert (row["batches"], row["inserted"]) == (0, 0)
    assert [each.kind for commit in one.log().since(-1) if (each := commit.batch_commit) is not None] == ["create", "fence", "start"]
    one.send(order("a", n=1))
    one.run()
    before = one.log().newest()
    no_java.typed(one, "run", "--once")
    assert one.log().newest() == before, "nothing to read needs no epoch"
    assert one.ids() == ["a"]
    one.balanced()


def test_a_seek(lane: MakeLane, no_java: NoJava) -> None:
    spark, direct = pair(lane)
    words = ("seek", "events", "--to", "earliest")
    assert no_java.typed(direct, *words, "--dry-run")["starts"] == [[0, 0]]
    done, epoch = no_java.typed(direct, *words), spark.seek("earliest")
    assert epoch.seek_plan is not None
    assert done == {"table": direct.places.name, "dry_run": False, "epoch": epoch.writer.epoch, **plan_row(epoch.seek_plan)}
    assert tables(direct) == tables(spark)
    for one in (spark, direct):
        one.run()
        one.balanced()
    assert tables(direct) == tables(spark), "and the next run goes on in the same way"


def test_states_of_quarantined_records(lane: MakeLane, no_java: NoJava) -> None:
    spark, direct = pair(lane)
    for verb, more, number, condition in (
        ("drop", ("--reason", "malformed_json"), 1, "reason_code = 'malformed_json'"),
        ("drop", ("--all",), 1, "state = 'open'"),
        ("reopen", ("--at", "0:3"), 1, "`offset` = 3"),
        ("drop", ("--reason", "wrong_type"), 0, "false"),
    ):
        assert no_java.typed(direct, "quarantine", verb, "events", *more, "--by", "ada")["records"] == number
        SparkWriter(spark.session).set_state(spark.places, condition, "dropped" if verb == "drop" else "open", "ada")
        assert tables(direct) == tables(spark)
    (dropped,) = no_java.typed(direct, "quarantine", "show", "events", "--state", "dropped")["records"]
    assert (dropped["offset"], dropped["state_by"]) == (2, "ada")
    assert [group["state"] for group in no_java.typed(direct, "quarantine", "list", "events")["groups"]] == ["dropped", "open"]
    out = direct.folder / "out.ndjson"
    assert no_java.typed(direct, "quarantine", "export", "events", "--out", str(out))["records"] == 1
    assert no_java.typed(direct, "status")["next"] == "continue at 0:4"
    assert no_java.typed(direct, "verify")["balanced"]
    direct.run()


def metadata(one: Lane) -> dict[str, Any]:
    """The newest metadata of the target's log, without what is the table's own."""
    for version in reversed(one.log().versions()):
        lines = Path(f"{one.places.target}/_delta_log/{version:020}.json").read_text(encoding="utf-8").splitlines()
        for found in (json.loads(line)["metaData"] for line in lines if "metaData" in json.loads(line)):
            kept = {name: value for name, value in found.items() if name not in ("id", "createdTime")}
            return {**kept, "schemaString": json.loads(found["schemaString"]), "description": found.get("description") or ""}
    raise AssertionError("no metadata")


def column(name: str, kind: str, *, nullable: bool = True, **more: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, **more}


def test_a_changed_contract_is_applied(lane: MakeLane, no_java: NoJava) -> None:
    before = {"n": "INT!", "s": "STRUCT<x: INT, deep: STRUCT<y: INT>>", "a": "ARRAY<STRUCT<x: INT>>"}
    added = [column("d", "DECIMAL(9,2)", comment="the 'sum'"), column("m", "MAP<STRING, ARRAY<STRUCT<q: INT COMMENT 'w', r: DATE>>>")]
    wider = [column("id", "STRING", nullable=False), column("n", "INT", comment="it's a number {}")]
    wider += [column("s", "STRUCT<x: INT, deep: STRUCT<y: INT, z: STRING COMMENT 'c'>, w: INT>")]
    wider += [column("a", "ARRAY<STRUCT<x: INT, y: TIMESTAMP>>"), *added]
    plain = [{**each, "comment": ""} for each in wider]
    steps: list[tuple[dict[str, Any], int]] = [
        ({"columns": wider, "conflicts": "table"}, 8),
        ({"columns": wider, "conflicts": "table", "description": "a 'new' one: ü\n"}, 1),
        ({"columns": wider, "conflicts": "table", "properties": {"delta.logRetentionDuration": "interval 60 days", "mine": "it's"}}, 3),
        ({"columns": plain, "conflicts": "table"}, 2),
        ({"columns": plain, "conflicts": "table"}, 0),
    ]
    spark, direct = two(lane, before, order("a", n=1))
    for more, number in steps:
        for one in (spark, direct):
            kept = one.contract.model_dump(mode="json", exclude_none=True, exclude={"description", "properties"})
            one.contract = Contract.model_validate({**kept, **more})
        created = direct.log().state()
        applied = no_java.typed(direct, "apply", "events")["applied"]
        assert len(applied) == number, applied
        due = [change for change in differences(None, spark.contract, spark.places) if change.effect == "apply"]
        assert [change.what for change in due] == applied
        writer.alter(spark.session, spark.contract, spark.places.target, [change.statement for change in due])
        assert metadata(direct) == metadata(spark)
        after = direct.log().state()
        assert created is not None and after is not None
        assert (after.id, after.created_ms) == (created.id, created.created_ms)
    for one in (spark, direct):
        one.send(order("e", n=None, s={"x": 1, "deep": {"y": 1, "z": "z"}, "w": 2}, a=[{"x": 1, "y": "2026-01-01T00:00:00Z"}], d=1.5))
        one.run()
        one.balanced()
    assert tables(direct) == tables(spark)
    assert direct.target().schema == spark.target().schema
    row = direct.target().where("id = 'e'").collect()[0].asDict()
    assert row["s"]["deep"]["z"] == "z" and row["n"] is None and row["_payload_hash"] is not None


def test_spark_applies_what_needs_another_protocol_or_its_own_checks(lane: MakeLane) -> None:
    one = lane(COLUMNS)
    one.send(order("a", n=1, mail="ada"))
    one.run()
    kept = one.contract.model_dump(mode="json", exclude_none=True)
    others: tuple[dict[str, Any], ...] = (
        {"properties": {"delta.enableChangeDataFeed": "true"}},
        {"properties": {"delta.logRetentionDuration": "a while"}},
        {"columns": [*kept["columns"], column("t", "TIMESTAMP_NTZ")]},
        {"layout": {"cluster_by": ["n"]}},
    )
    before = one.versions()
    for more in others:
        with pytest.raises(RuntimeError, match="Spark"):
            alter(no_session, Contract.model_validate({**kept, **more}), one.places)
    assert one.versions() == before
    changed = Contract.model_validate({**kept, **others[0]})
    alter(lambda: one.session, changed, one.places)
    assert differences(None, changed, one.places) == []


EVENTS: dict[str, tuple[dict[str, Any], list[Record]]] = {
    "the id in columns, conflicts with rows of the table": (
        {"conflicts": "table", "layout": {"partition_by": ["mail"]}},
        [
            Record(order("a", n=1, mail="ada")),
            Record(order("b", n=200, mail="b")),  # becomes a row
            Record(order("b", n=200, mail="b")),  # its copy
            Record(order("b", n=300, mail="b")),  # a copy with another payload
            Record(order("a", n=200, mail="ada")),  # the table has another payload
            Record(order("c", n=400, mail=None), headers=[("h", b"\x00\xff"), ("empty", b""), ("h", b"2")]),
            Record("{"),
        ],
    ),
    "the id in a header": (
        {"event_id": "header:id", "unknown_fields": "keep"},
        [
            Record(json.dumps({"n": 1}), headers=[("id", b"a")]),
            Record(json.dumps({"n": 200, "x": {"y": 1}}), headers=[("id", b"old"), ("id", b"b")]),
            Record(json.dumps({"n": 300}), headers=[("id", b"a"), ("empty", b"")]),
            Record(json.dumps({"n": 300})),
        ],
    ),
    "the position": (
        {"event_id": "position", "rules": [{"name": "keyed", "check": "key IS NOT NULL"}]},
        [Record("a"), Record(b"\xff", headers=[("h", b"\x00")]), Record(None, key=b"k"), Record("")],
    ),
}


@pytest.mark.parametrize("case", EVENTS)
def test_a_replay_of_quarantined_records(lane: MakeLane, no_java: NoJava, case: str) -> None:
    more, records = EVENTS[case]
    spark, direct = two(lane, {} if more.get("event_id") == "position" else COLUMNS, *records, **{"rules": RULES, **more})
    for one in (spark, direct):
        one.contract = one.contract.model_copy(update={"rules": ()})
    broker = topics_of(spark)
    expected = try_replay(SparkWriter(spark.session), spark.contract, spark.places, broker, Selection())
    tried = no_java.typed(direct, "quarantine", "replay", "events", "--dry-run")
    assert tried == {"table": direct.places.name, "dry_run": True, **json.loads(json.dumps(vars(expected)))}
    assert tables(direct) == tables(spark)
    done = replay_quarantine(SparkWriter(spark.session), spark.contract, spark.places, broker, Selection())
    assert done.inserted, "otherwise nothing was compared"
    replayed = no_java.typed(direct, "quarantine", "replay", "events")
    assert replayed == {"table": direct.places.name, "dry_run": False, **json.loads(json.dumps(vars(done)))}
    assert tables(direct) == tables(spark)
    for one in (spark, direct):
        one.balanced()
        one.run()


def test_an_erasure(lane: MakeLane, no_java: NoJava) -> None:
    spark, direct = pair(lane)
    conditions = (f"mail = '{PERSON}'", f"text LIKE '%{PERSON}%'")
    words = ("erase", "events", "--where", conditions[0], "--quarantine-where", conditions[1])
    tried = no_java.typed(direct, *words, "--dry-run")
    assert (tried["rows"], tried["records"], [each["records"] for each in tried["in_kafka"]]) == (1, 1, [2])
    assert tables(direct) == tables(spark)
    states = topics_of(spark)()
    wanted = Erasure(*conditions, numbered((), states))
    done = erase(SparkWriter(spark.session), spark.places, wanted, history=True)
    erased = no_java.typed(direct, *words)
    assert {name: erased[name] for name in vars(done)} == json.loads(json.dumps({**vars(done), "in_kafka": list(map(vars, done.in_kafka))}))
    assert tables(direct) == tables(spark)
    assert files_that_contain(direct.places.root, PERSON) == []
    operations = [[commit.operation for commit in one.log().since(-1)][-3:] for one in (spark, direct)]
    assert operations[0] == operations[1] == ["MERGE", "VACUUM START", "VACUUM END"]
    for one in (spark, direct):
        one.balanced()
        one.run()


def test_a_table_that_only_spark_can_rewrite_is_erased_from_by_spark(lane: MakeLane, no_java: NoJava) -> None:
    """It has a change data feed, so the direct writer may add to it, but not write its files again."""
    one = lane(COLUMNS, properties={"delta.enableChangeDataFeed": "true"})
    one.send(order("a", n=1, mail=PERSON), order("b", n=2, mail="b"))
    one.run()
    assert "epoch" in no_java.typed(one, "seek", "events", "--to", "latest")
    code, document = typed(one, "erase", "events", "--where", f"mail = '{PERSON}'", more={"INGEST_WRITER": "auto"})
    assert (code, document["tables"][0]["rows"]) == (0, 1), document
    assert one.ids() == ["b"]
    one.balanced()


def test_the_swap_of_a_rebuild(lane: MakeLane, no_java: NoJava) -> None:
    """Partitions, a change data feed, and a column of its own, which the old rows lack: Spark and deltalake read what Spark would write."""
    more: dict[str, Any] = {"rules": RULES, "layout": {"partition_by": ["mail"]}, "properties": {"delta.enableChangeDataFeed": "true"}}
    records = (order("a", n=1, mail="a b/ü"), order("b", n=2, mail=None), order("a", n=1, mail="a b/ü"), "{", order("c", n=200, mail="c"))
    spark, direct = two(lane, {"n": "INT", "mail": "STRING"}, *records, **more)
    tried = no_java.typed(direct, "rebuild", "events", "--dry-run")
    assert tried == {"table": direct.places.name, "dry_run": True, "rows": 0, "doubled": 0, "records": 0, "starts": {"0": 0}}
    spark.direct = False
    for one in (spark, direct):
        one.sql("DELETE FROM {} WHERE id = 'a'")
        fill(one)
    done, swapped = no_java.typed(direct, "rebuild", "events", "--swap"), swap_in(spark)
    expected = {**vars(swapped), "version_before": done["version_before"]}
    assert done == {"table": direct.places.name, **json.loads(json.dumps(expected))}
    assert tables(direct) == tables(spark)
    assert direct.ids() == spark.ids() == ["a", "b"]
    for name in ("target", "quarantine"):
        theirs, mine = (next(each for each in one.log(name).newest_first() if each.added) for one in (spark, direct))
        assert (mine.operation, mine.parameters["mode"], mine.transactions) == (theirs.operation, "Overwrite", theirs.transactions)
    feed = direct.session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", done["version_before"] + 1)
    changes = sorted((row["_change_type"], row["id"]) for row in feed.load(direct.places.target).collect())
    assert changes == [("delete", "b"), ("insert", "a"), ("insert", "b")]
    before = DeltaTable(direct.places.target, version=done["version_before"])
    assert before.to_pyarrow_table()["id"].to_pylist() == ["b"]
    for one in (spark, direct):
        one.balanced()
        one.send(order("d", n=4, mail="d"), order("b", n=2))
        (report,) = one.run()
        assert (report.inserted, report.duplicate) == (1, 1)
        one.balanced()


def test_a_shadow_is_discarded(lane: MakeLane, no_java: NoJava) -> None:
    one = lane(COLUMNS)
    one.send(order("a", n=1, mail="ada"))
    one.run()
    before = one.versions()
    fill(one)
    assert no_java.typed(one, "rebuild", "events", "--discard") == {"table": one.places.name, "discarded": True}
    assert not shadow_exists(None, one.places) and one.versions() == before


def test_every_record_is_located_in_kafka(lane: MakeLane, no_java: NoJava) -> None:
    """Duplicates are decoded again; a record that was lost is found behind a balance that holds."""
    one = lane(COLUMNS, rules=RULES)
    one.send(order("a", n=1, mail="ada"), order("a", n=1, mail="ada"), "{", order("c", n=200, mail="c"))
    one.run()
    one.transaction(order("b", n=2, mail="b"), order("a", n=1, mail="ada"))
    one.run()
    found = no_java.typed(one, "verify", "--against-kafka")
    assert (found["balanced"], found["kafka"]["records"], found["kafka"]["duplicate"]) == (True, 6, 2)
    assert found["kafka"]["gaps"] == {"commit marker": 1}
    one.target().where("id <> 'b'").write.format("delta").mode("overwrite").save(one.places.target)
    code, document = typed(one, "verify", "--against-kafka", more=no_java.environment)
    lost = [each for each in document["tables"][0]["kafka"]["findings"] if each["code"] == "RECORD_LOST"]
    assert code == 1 and [each["start_offset"] for each in lost if each["batch"] is None] == [4], document
    assert not no_java.started.exists()


def test_a_maintenance(lane: MakeLane, no_java: NoJava) -> None:
    """Both engines read the rows of before, and the next batch finds the event ids in the merged file."""
    one = lane(COLUMNS, rules=RULES)
    one.direct = True
    one.send(*(order(str(number), n=number, mail="m") for number in range(12)), "{")
    one.run(max_records=1)
    before = [sorted(map(str, frame.collect())) for frame in (one.target(), one.quarantine())]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = {each["table"]: each for each in no_java.typed(one, "maintain", "events")["delta"]}
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime < 3
    assert (done["target"]["files_before"], done["target"]["files_after"]) == (12, 1), done
    assert [sorted(map(str, frame.collect())) for frame in (one.target(), one.quarantine())] == before
    assert DeltaTable(one.places.target).to_pyarrow_table().num_rows == 12
    one.balanced()
    one.send(order("3", n=3, mail="again"), order("12", n=12, mail="m"))
    one.run()
    assert len(one.ids()) == 13 and len(DeltaTable(one.places.target).file_uris()) == 2
    one.balanced()
    short = ("--vacuum-retention", "0s", "--force-retention", "a test")
    done = {each["table"]: each for each in no_java.typed(one, "maintain", "events", *short)["delta"]}
    assert done["target"]["vacuumed"] == 12 and len(one.ids()) == 13
    one.balanced()


def topics_of(one: Lane) -> Broker:
    return partial(current_states, KafkaOptions(one.bootstrap_servers), one.contract.source)


def no_session() -> Any:
    raise RuntimeError("Spark is needed")
