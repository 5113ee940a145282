"""Commands as a user types them, on a table filled by runs: `seek --to`, `--dry-run`, `status`, `apply`, `verify --against-kafka`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ingest.cli.seek import parse_aim
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import topics_of
from ingest.recovery.seek_offsets import Aim
from ingest.runtime.errors import InvalidInput
from tests.integration.lane import Lane, Record, order, two_batches
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]


def typed(lane: Lane, *words: str, more: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """Run `ingest` with these arguments and --json on the lane's folders. Returns exit code and document.

    `more` are environment variables.
    """
    done = ended(lane, *words, more=more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def ended(lane: Lane, *words: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The process of `typed`, which may have been killed."""
    project = lane.folder / "project"
    (project / "tables").mkdir(parents=True, exist_ok=True)
    (project / "tables/events.yml").write_text(lane.contract.to_json(), encoding="utf-8")
    places = {"INGEST_PROJECT": project, "INGEST_LAKE": lane.places.lake, "INGEST_CHECKPOINTS": lane.places.checkpoints}
    where = {"INGEST_BOOTSTRAP_SERVERS": lane.bootstrap_servers, "INGEST_MASTER": "local[2]"}
    environment = {**os.environ, **{name: str(value) for name, value in places.items()}, **where, **(more or {})}
    command = [sys.executable, "-c", "from ingest.cli.app import main; main()", *words, "--json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_a_seek_accepts_a_word_offsets_or_a_time(lane: MakeLane) -> None:
    """I6: a time means the offset of the first record that is not older, or the end if every record is older."""
    one = lane(partitions=2)
    one.send(order("a"), Record(order("b"), 1))
    time.sleep(0.01)  # Kafka's timestamps are milliseconds
    moment = datetime.now(UTC)
    one.send(order("c"))
    kafka = KafkaOptions(one.bootstrap_servers)
    topics = topics_of(kafka, one.contract.source)
    name = one.topic
    for word in ("table", "earliest", "latest"):
        assert parse_aim(word, kafka, topics) == Aim(word)
    assert parse_aim("0:1200,1:900", kafka, topics) == Aim("offsets", (((name, 0), 1200), ((name, 1), 900)))
    zoned, plain = moment.isoformat(), moment.replace(tzinfo=None).isoformat()
    for text in (zoned, plain):
        assert parse_aim(text, kafka, topics) == Aim("offsets", (((name, 0), 1), ((name, 1), 1))), "a time without a zone is UTC"
    assert parse_aim("2001-01-01", kafka, topics) == Aim("offsets", (((name, 0), 0), ((name, 1), 0)))
    for text in ("yesterday", "0:x", "0:1:2", ""):
        with pytest.raises(InvalidInput, match="AIM_INVALID"):
            parse_aim(text, kafka, topics)


@pytest.mark.slow
def test_status_shows_a_tables_position_and_what_a_start_would_do_without_spark(lane: MakeLane) -> None:
    """I6"""
    one = two_batches(lane)
    one.send(order("c"))
    code, document = typed(one, "status")
    (table,) = document["tables"]
    assert (code, document["ok"], table["next"], table["refusal"]) == (0, True, "continue at 0:3", None)
    assert [table[name] for name in ("epoch", "last_batch", "ledger_batch", "lag", "running")] == [2, "2/2", "2/2", 1, None]
    one.lose_checkpoints()
    assert typed(one, "status")[1]["tables"] == [table], "checkpoints are only a cache"
    one.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    code, document = typed(one, "status")
    assert (code, document["ok"], document["tables"][0]["next"]) == (3, False, "refuse")
    assert document["tables"][0]["refusal"]["code"] == "TABLE_REWOUND"


@pytest.mark.slow
def test_a_dry_run_changes_nothing_and_the_seek_does_what_it_announced(lane: MakeLane) -> None:
    one = two_batches(lane)

    def files() -> list[str]:
        folders = (one.places.root, one.places.checkpoint)
        return sorted(str(path) for folder in folders for path in Path(folder).rglob("*"))

    before = files()
    code, document = typed(one, "seek", "events", "--to", "earliest", "--dry-run")
    (planned,) = document["tables"]
    assert (code, planned["dry_run"], planned["starts"], planned["read_again"]) == (0, True, [[0, 0]], [[0, 0, 3]])
    assert files() == before
    code, document = typed(one, "seek", "events", "--to", "earliest")
    (done,) = document["tables"]
    assert (code, done["starts"], done["epoch"]) == (0, planned["starts"], 3)
    one.send(order("a", n=1))
    assert typed(one, "run", "--once")[0] == 0
    version = one.log().newest()
    assert typed(one, "run", "--once")[0] == 0 and one.log().newest() == version, "with nothing to read no epoch is opened"
    code, document = typed(one, "verify", "--against-kafka")
    # The duplicate has to be decoded, so this process, which has no Spark session yet, must start one.
    kafka = document["tables"][0]["kafka"]
    assert (code, document["tables"][0]["balanced"], kafka["records"], kafka["duplicate"]) == (0, True, 4, 1), document


@pytest.mark.slow
def test_a_contract_that_its_table_cannot_follow_does_not_block_the_others(lane: MakeLane) -> None:
    one = two_batches(lane)
    folder = one.folder / "project/tables"
    folder.mkdir(parents=True)
    (folder / "other.yml").write_text(one.contract.model_copy(update={"table": "other"}).to_json(), encoding="utf-8")
    one.contract = contract({"n": "INT!"}, topic=one.contract.source.topic)
    code, document = typed(one, "apply")
    assert (code, document["ok"], document["error"]["code"]) == (3, False, "CONTRACT_CHANGED")
    applied, failed = document["tables"]
    assert applied == {"table": "t.other", "applied": []} and (failed["table"], failed["ok"]) == (one.places.name, False)


@pytest.mark.slow
def test_a_table_whose_topic_is_gone_does_not_block_verifying_the_others(lane: MakeLane) -> None:
    one = two_batches(lane)
    folder = one.folder / "project/tables"
    folder.mkdir(parents=True)
    gone = one.contract.model_copy(update={"table": "gone", "source": one.contract.source.model_copy(update={"topic": "gone"})})
    (folder / "gone.yml").write_text(gone.to_json(), encoding="utf-8")
    code, document = typed(one, "verify", "--against-kafka")
    assert (code, document["ok"], document["error"]["code"]) == (4, False, "TOPIC_UNKNOWN")
    table, failed = document["tables"]
    assert (table["table"], table["balanced"], table["kafka"]["records"]) == (one.places.name, True, 3)
    assert (failed["table"], failed["ok"], failed["error"]["code"]) == (gone.name, False, "TOPIC_UNKNOWN")
