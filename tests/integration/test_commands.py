"""Verbs as they are typed, on a table that a run has left: `seek --to`, `--dry-run`, `status`, `verify --against-kafka`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.seek import parse_aim
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe
from ingest.recovery.seek_offsets import Aim
from ingest.runtime.errors import InvalidInput
from tests.integration.lane import Lane, Record, order, two_batches
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def typed(lane: Lane, *words: str) -> tuple[int, Any]:
    """`ingest` with these words and --json, on the lane's places; exit code and document."""
    project = lane.folder / "project"
    (project / "tables").mkdir(parents=True, exist_ok=True)
    (project / "tables/events.yml").write_text(lane.contract.to_json(), encoding="utf-8")
    places = {"INGEST_PROJECT": project, "INGEST_LAKE": lane.places.lake, "INGEST_CHECKPOINTS": lane.places.checkpoints}
    more = {"INGEST_BOOTSTRAP_SERVERS": lane.bootstrap_servers, "INGEST_MASTER": "local[2]"}
    environment = {**os.environ, **{name: str(value) for name, value in places.items()}, **more}
    command = [sys.executable, "-c", "from ingest.cli.app import main; main()", *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_seek_begins_where_it_is_told_by_words_offsets_or_a_time(lane: MakeLane) -> None:
    """I6: a time is where the first record that is not older stands; behind the last record it is the end."""
    one = lane(partitions=2)
    one.send(order("a"), Record(order("b"), 1))
    time.sleep(0.01)  # Kafka's timestamps are milliseconds
    moment = datetime.now(UTC)
    one.send(order("c"))
    kafka = KafkaOptions(one.bootstrap_servers)
    topic = describe(kafka, one.contract.source.topic)
    for word in ("table", "earliest", "latest"):
        assert parse_aim(word, kafka, topic) == Aim(word)
    assert parse_aim("0:1200,1:900", kafka, topic) == Aim("offsets", ((0, 1200), (1, 900)))
    zoned, plain = moment.isoformat(), moment.replace(tzinfo=None).isoformat()
    for text in (zoned, plain):
        assert parse_aim(text, kafka, topic) == Aim("offsets", ((0, 1), (1, 1))), "without a zone it is UTC"
    assert parse_aim("2001-01-01", kafka, topic) == Aim("offsets", ((0, 0), (1, 0)))
    for text in ("yesterday", "0:x", "0:1:2", ""):
        with pytest.raises(InvalidInput, match="AIM_INVALID"):
            parse_aim(text, kafka, topic)


def test_status_says_where_a_table_stands_and_what_a_start_would_do_without_spark(lane: MakeLane) -> None:
    """I6"""
    one = two_batches(lane)
    one.send(order("c"))
    code, told = typed(one, "status")
    (table,) = told["tables"]
    assert (code, told["ok"], table["next"], table["refusal"]) == (0, True, "continue at 0:3", None)
    assert [table[name] for name in ("epoch", "last_batch", "ledger_batch", "lag", "running")] == [2, "2/2", "2/2", 1, None]
    one.lose_checkpoints()
    assert typed(one, "status")[1]["tables"] == [table], "a cache"
    one.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    code, told = typed(one, "status")
    assert (code, told["ok"], told["tables"][0]["next"]) == (3, False, "refuse")
    assert told["tables"][0]["refusal"]["code"] == "TABLE_REWOUND"


@pytest.mark.slow
def test_a_dry_run_changes_nothing_and_the_seek_does_what_it_said(lane: MakeLane) -> None:
    one = two_batches(lane)

    def files() -> list[str]:
        folders = (one.places.root, one.places.checkpoint)
        return sorted(str(path) for folder in folders for path in Path(folder).rglob("*"))

    before = files()
    code, told = typed(one, "seek", "events", "--to", "earliest", "--dry-run")
    (planned,) = told["tables"]
    assert (code, planned["dry_run"], planned["starts"], planned["read_again"]) == (0, True, [[0, 0]], [[0, 0, 3]])
    assert files() == before
    code, told = typed(one, "seek", "events", "--to", "earliest")
    (done,) = told["tables"]
    assert (code, done["starts"], done["epoch"]) == (0, planned["starts"], 3)
    one.send(order("a", n=1))
    assert typed(one, "run", "--once")[0] == 0
    version = one.log().newest()
    assert typed(one, "run", "--once")[0] == 0 and one.log().newest() == version, "with nothing to read no epoch is opened"
    code, told = typed(one, "verify", "--against-kafka")
    # A duplicate has to be decoded: in a process that has no Spark until then.
    kafka = told["tables"][0]["kafka"]
    assert (code, told["tables"][0]["balanced"], kafka["records"], kafka["duplicate"]) == (0, True, 4, 1), told


@pytest.mark.slow
def test_a_contract_that_its_table_cannot_follow_keeps_no_other_from_being_applied(lane: MakeLane) -> None:
    one = two_batches(lane)
    folder = one.folder / "project/tables"
    folder.mkdir(parents=True)
    (folder / "other.yml").write_text(one.contract.model_copy(update={"table": "other"}).to_json(), encoding="utf-8")
    one.contract = contract({"n": "INT!"}, topic=one.contract.source.topic)
    code, told = typed(one, "apply")
    assert (code, told["ok"], told["error"]["code"]) == (3, False, "CONTRACT_CHANGED")
    applied, failed = told["tables"]
    assert applied == {"table": "t.other", "applied": []} and (failed["table"], failed["ok"]) == (one.places.name, False)


@pytest.mark.slow
def test_a_table_whose_topic_is_gone_keeps_no_other_from_being_held_against_kafka(lane: MakeLane) -> None:
    one = two_batches(lane)
    folder = one.folder / "project/tables"
    folder.mkdir(parents=True)
    gone = one.contract.model_copy(update={"table": "gone", "source": one.contract.source.model_copy(update={"topic": "gone"})})
    (folder / "gone.yml").write_text(gone.to_json(), encoding="utf-8")
    code, told = typed(one, "verify", "--against-kafka")
    assert (code, told["ok"], told["error"]["code"]) == (4, False, "TOPIC_UNKNOWN")
    table, failed = told["tables"]
    assert (table["table"], table["balanced"], table["kafka"]["records"]) == (one.places.name, True, 3)
    assert (failed["table"], failed["ok"], failed["error"]["code"]) == (gone.name, False, "TOPIC_UNKNOWN")
