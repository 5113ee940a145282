"""Commands that a person on call types: the quarantine's, a rebuild and its swap, and an erasure, on a table filled by runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.run import table_lock
from ingest.runtime import crash_points
from tests.integration.lane import Lane, order
from tests.integration.records import contract
from tests.integration.test_commands import ended, typed
from tests.integration.test_erase import files_that_contain

pytestmark = pytest.mark.integration
MakeLane = Callable[..., Lane]
COLUMNS = {"n": "INT", "mail": "STRING"}
PERSON = "ada@example.org"


def filled(lane: MakeLane) -> Lane:
    """Rows a and b; in quarantine c (a rule refuses it) and a record that is no JSON."""
    one = lane(COLUMNS, rules=[{"name": "small", "check": "n < 100"}])
    one.send(order("a", n=1, mail=PERSON), order("b", n=2, mail="b"), order("c", n=200, mail=PERSON), "{")
    one.run()
    return one


def done(one: Lane, *words: str) -> dict[str, Any]:
    """The document of a command that must succeed: its only table."""
    code, document = typed(one, *words)
    assert (code, document["ok"], document["error"]) == (0, True, None), document
    (table,) = document["tables"]
    assert isinstance(table, dict)
    return table


@pytest.mark.slow
def test_the_quarantine_is_listed_shown_and_exported_without_spark(lane: MakeLane, tmp_path: Path) -> None:
    one = filled(lane)
    groups = done(one, "quarantine", "list", "events")["groups"]
    assert {(each["reason"], each["state"], each["records"]) for each in groups} == {
        ("broken_rule", "open", 1),
        ("malformed_json", "open", 1),
    }
    (shown,) = done(one, "quarantine", "show", "events", "--reason", "broken_rule")["records"]
    assert (shown["offset"], shown["reason_detail"], json.loads(shown["value_text"])["n"]) == (2, "small", 200)
    out = tmp_path / "out.ndjson"
    assert done(one, "quarantine", "export", "events", "--out", str(out))["records"] == 2
    assert [json.loads(line)["offset"] for line in out.read_text(encoding="utf-8").splitlines()] == [2, 3]
    for words, code in (
        (("export", "events", "--out", str(out)), "EXPORT_FILE"),
        (("list", "events", "--at", "x"), "SELECTION_INVALID"),
        (("drop", "events", "--by", "ada"), "SELECTION_EMPTY"),
    ):
        exit_code, document = typed(one, "quarantine", *words)
        assert (exit_code, document["error"]["code"]) == (2, code)


@pytest.mark.slow
def test_replay_drop_rebuild_swap_and_erasure_balance_one_after_the_other(lane: MakeLane) -> None:
    one = filled(lane)
    one.contract = contract(COLUMNS, topic=one.contract.source.topic)
    tried = done(one, "quarantine", "replay", "events", "--dry-run")
    assert (tried["selected"], tried["inserted"], tried["epoch"]) == (2, 1, None)
    replayed = done(one, "quarantine", "replay", "events")
    assert (replayed["inserted"], replayed["refused"]) == (1, {"malformed_json": 1})
    assert done(one, "verify")["total"]["replayed"] == 1
    assert done(one, "quarantine", "drop", "events", "--reason", "malformed_json", "--by", "ada")["records"] == 1
    assert done(one, "quarantine", "reopen", "events", "--all", "--by", "ada")["records"] == 1

    assert done(one, "rebuild", "events", "--dry-run")["rows"] == 0
    done(one, "rebuild", "events")
    one.send(order("d", n=4))
    done(one, "run", "--once")
    one.expire(5)
    code, document = typed(one, "rebuild", "events")
    assert (code, document["error"]["code"]) == (3, "RECORDS_EXPIRED") and "--restart" in document["error"]["remedy"], document
    assert done(one, "rebuild", "events", "--restart")["rows"] == 4
    shadow = replace(one.places, lake=f"{one.places.lake}/rebuild-shadow")
    code, document = typed(one, "compare", one.places.target, shadow.target)
    assert (code, document["ok"]) == (0, True), document
    swapped = done(one, "rebuild", "events", "--swap")
    assert (swapped["rows_before"], swapped["rows_after"]) == (4, 4)
    assert done(one, "verify")["balanced"]

    where = ("--where", f"mail = '{PERSON}'", "--quarantine-where", f"text LIKE '%{PERSON}%'")
    assert done(one, "erase", "events", *where, "--dry-run")["rows"] == 2
    erased = done(one, "erase", "events", *where)
    assert files_that_contain(one.places.lake, PERSON) == [], "tables, logs of Delta and logs of Spark"
    assert (erased["rows"], erased["in_kafka"], erased["kafka_unknown"]) == (2, [], None), "Kafka has expired them"
    places = ["Kafka", "the tables' logs", "the database", f"{one.places.lake}/logs", "other checkpoints", "copies"]
    assert [each["place"] for each in erased["left"]] == places
    assert done(one, "verify")["balanced"]
    one.send(order("e", n=5))
    done(one, "run", "--once")
    verified = done(one, "verify")
    assert verified["balanced"] and verified["target"]["found"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["direct", "spark"])
def test_erasures_and_retentions_killed_right_behind_their_commits_balance_at_once(lane: MakeLane, writer: str) -> None:
    """I4: the commit that removes rows posts them, so nobody has to complete anything first."""
    one = filled(lane)
    (Path(one.places.lake) / crash_points.SCRATCH).touch()
    where = ("erase", "events", "--where", f"mail = '{PERSON}'", "--quarantine-where", f"text LIKE '%{PERSON}%'")
    before = one.verified()
    for words, point in (
        (where, "erase_target"),
        (where, "erase_quarantine"),
        (("maintain", "events", "--open-too", "--keep-quarantine", "0s"), "maintain_deleted"),
    ):
        killed = ended(one, *words, more={"INGEST_WRITER": writer, "INGEST_FAULT": f"{point}:kill@0"})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        table_lock.wait_for(one.places)  # the JVM may still be ending
        one.balanced()
    found = one.verified()
    assert found.target.retired > 0 and found.target.found + found.target.retired == before.target.found
    assert (found.quarantine.retired, found.quarantine.found) == (before.quarantine.found, 0)
    one.forget_tables()
    one.send(order("e", n=5))
    one.run()
    one.balanced()
