"""Verbs on tables that the direct writer can write: no JVM starts, and the tables and documents are those that Spark would have left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.cli.seek import _row
from ingest.delta.table_writer import SparkWriter
from tests.integration.lane import Lane, order
from tests.integration.test_commands import typed

pytestmark = [pytest.mark.integration, pytest.mark.slow]
MakeLane = Callable[..., Lane]
COLUMNS = {"n": "INT", "mail": "STRING"}
RULES = [{"name": "small", "check": "n < 100"}]
# What differs between two runs of the same commands: times, random ids, the topic that a lane has for itself, and versions.
OTHERWISE = {"_ingested_at", "_kafka_timestamp", "kafka_timestamp", "state_changed_at", "topic", "topic_id", "contract_hash"}
OTHERWISE |= {"committed_at", "target_version"}


class NoJava:
    """An environment whose Java notes that it was started, and fails."""

    def __init__(self, folder: Path) -> None:
        self._started = folder / "java-was-started"
        (java := folder / "java-home/bin/java").parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\ntouch '{self._started}'\nexit 1\n", encoding="utf-8")
        java.chmod(0o755)
        self.environment = {"JAVA_HOME": str(folder / "java-home"), "PATH": f"{java.parent}:{os.environ['PATH']}", "INGEST_WRITER": "auto"}

    def typed(self, one: Lane, *words: str) -> dict[str, Any]:
        """The table's part of the document of a command that must succeed without a JVM."""
        code, document = typed(one, *words, more=self.environment)
        assert not self._started.exists(), words
        assert (code, document["error"]) == (0, None), document
        (table,) = document["tables"]
        assert isinstance(table, dict)
        return table


@pytest.fixture
def no_java(tmp_path: Path) -> NoJava:
    return NoJava(tmp_path)


def pair(lane: MakeLane, **more: Any) -> tuple[Lane, Lane]:
    """Two lanes with the same records: rows a and b; in quarantine c (a rule refuses it) and a record that is no JSON."""
    both = lane(COLUMNS, rules=RULES, **more), lane(COLUMNS, rules=RULES, **more)
    for number, one in enumerate(both):
        one.folder = one.folder / str(number)
        one.places = type(one.places)(str(one.folder / "lake"), str(one.folder / "checkpoints"), one.places.pipeline, one.places.table)
        one.send(order("a", n=1, mail="ada"), order("b", n=2, mail="b"), order("c", n=200, mail="ada"), "{")
        one.run()
    return both


def tables(one: Lane) -> dict[str, list[tuple[str, ...]]]:
    """The rows of target, quarantine and ledger, without what differs between two runs, sorted."""
    found = {}
    for name in ("target", "quarantine", "ledger"):
        rows = DeltaTable(f"{one.places.root}/{name}").to_pyarrow_table().to_pylist()
        found[name] = sorted(tuple(f"{key}={value}" for key, value in row.items() if key not in OTHERWISE) for row in rows)
    return found


def test_a_seek(lane: MakeLane, no_java: NoJava) -> None:
    spark, direct = pair(lane)
    words = ("seek", "events", "--to", "earliest")
    assert no_java.typed(direct, *words, "--dry-run")["starts"] == [[0, 0]]
    done, epoch = no_java.typed(direct, *words), spark.seek("earliest")
    assert epoch.sought is not None
    assert done == {"table": direct.places.name, "dry_run": False, "epoch": epoch.writer.epoch, **_row(epoch.sought)}
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
