"""`ingest audit` of tables that deltalake wrote here, against a real broker: by position and by event id, with its exit codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka import TopicPartition

from ingest.lab.broker.broker_probe import admin
from tests.command import exit_code
from tests.kafka.topics import Make, Topics

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker

Ingest = Callable[..., tuple[int, Any]]


@pytest.fixture
def ingest(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Ingest:
    """Runs `ingest audit` in this process. Returns the exit code, and the JSON document if --json is among the words."""

    def run(*words: str) -> tuple[int, Any]:
        code = exit_code("audit", *words, "--bootstrap-servers", broker.bootstrap_servers)
        out = capsys.readouterr()
        return code, json.loads(out.out) if "--json" in words else out.out + out.err

    return run


@pytest.fixture
def filled(topic: Callable[..., str], make: Make) -> str:
    """Two partitions: a committed transaction of the ids 0 to 9, an aborted one of 100 to 103, a committed one of 10 to 13 and 3 again."""
    name = topic(2)
    producer = make()
    for ids, commit in ((range(10), True), (range(100, 104), False), ([10, 11, 12, 13, 3], True)):
        with contextlib.suppress(_Aborted), producer.transaction() as transaction:
            for number in ids:
                value = json.dumps({"order": {"id": f"o-{number}"}, "n": number}).encode()
                transaction.send(name, value, partition=number % 2, key=b"k%d" % number)
            if not commit:
                transaction._made.flush()
                raise _Aborted
    return name


class _Aborted(Exception):
    """Raised in a transaction, to abort it."""


def rows_of(topics: Topics, name: str, level: str = "read_committed") -> list[dict[str, Any]]:
    """The rows that a writer with this isolation level makes, with positions and ids."""
    return [
        {"meta": {"kafka": {"partition": r.partition, "offset": r.offset}}, "id": json.loads(r.value)["order"]["id"], "key": r.key}
        for r in topics.read(name, level)
    ]


def written(folder: Path, rows: list[dict[str, Any]]) -> str:
    write_deltalake(str(folder), pa.Table.from_pylist(rows))
    return str(folder)


def numbers(document: Any) -> dict[str, int]:
    (row,) = document["tables"]
    return {name: row[name]["number"] for name in ("lost", "doubled", "aborted", "no_record", "undecided")}


def test_by_position_an_exact_table_passes_and_every_fault_of_another_is_named(
    ingest: Ingest, topics: Topics, filled: str, tmp_path: Path
) -> None:
    rows = rows_of(topics, filled)
    exact = written(tmp_path / "exact", rows)
    code, text = ingest(exact, "--topic", filled)
    assert code == 0 and "EXACT (by position: meta.kafka.partition, meta.kafka.offset (recognised by name))" in text, text

    aborted = [row for row in rows_of(topics, filled, "read_uncommitted") if row not in rows]
    assert len(aborted) == 4
    lost = next(row for row in rows if row["id"] == "o-4")
    twice = next(row for row in rows if row["id"] == "o-7")
    marker = {"meta": {"kafka": {"partition": 0, "offset": 5}}, "id": "?", "key": b"?"}  # ids 0, 2, 4, 6, 8 are at 0 to 4
    last = [row for row in rows if row["id"] in ("o-11", "o-13", "o-3")][-3:]  # the end of partition 1
    wrong = [row for row in rows if row not in (lost, *last)] + [twice, aborted[0], marker]
    table, listed = written(tmp_path / "wrong", wrong), tmp_path / "list.csv"
    code, document = ingest(table, "--topic", filled, "--json", "--out", str(listed))
    assert code == 1 and not document["ok"]
    assert numbers(document) == {"lost": 1, "doubled": 1, "aborted": 1, "no_record": 1, "undecided": 0}
    found = {line["fault"]: (line["partition"], line["offset"]) for line in pyarrow.csv.read_csv(listed).to_pylist()}
    at = {name: tuple(row["meta"]["kafka"].values()) for name, row in (("lost", lost), ("doubled", twice), ("aborted", aborted[0]))}
    assert found == {**at, "no record": (0, 5)}
    (row,) = document["tables"]
    assert row["not_read_yet"] == {"1": 3} and row["gaps"] == {"aborted": 1, "abort marker": 1}
    code, text = ingest(table, "--topic", filled)
    assert f"! lost: {filled}[{at['lost'][0]}]@{at['lost'][1]}" in text
    assert DeltaTable(table).version() == 0, "an audit writes nothing"
    # With the ids, the second copy of id 3 counts as dropped; without its first row it would be lost.
    first = [row for row in rows if row is not last[-1]]
    columns = ("--partition-column", "meta.kafka.partition", "--offset-column", "meta.kafka.offset")
    ids = ("--event-id", "id", "--record-id", "$.order.id", "--to", "end")
    code, document = ingest(written(tmp_path / "once", first), "--topic", filled, *columns, *ids, "--json")
    assert (code, document["tables"][0]["copies_dropped"]) == (0, 1)


@pytest.mark.parametrize(("column", "place"), [("id", "$.order.id"), ("key", "key")])
def test_by_event_id_the_same_faults_are_found_without_positions(
    ingest: Ingest, topics: Topics, filled: str, tmp_path: Path, column: str, place: str
) -> None:
    rows = [{name: row[name] for name in ("id", "key")} for row in rows_of(topics, filled, "read_uncommitted")]
    named = {row["id"]: row for row in rows}
    kept = [named[f"o-{number}"] for number in (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13)]
    how = ("--topic", filled, "--event-id", column, "--record-id", place)
    table = written(tmp_path / "table", [*kept, named["o-7"], named["o-100"], {"id": "other", "key": b"other"}])
    listed = tmp_path / "list.parquet"
    code, document = ingest(table, *how, "--json", "--out", str(listed))
    assert code == 1
    assert numbers(document) == {"lost": 1, "doubled": 1, "aborted": 1, "no_record": 1, "undecided": 0}
    texts = {line["fault"]: line["event_id"] for line in pyarrow.parquet.read_table(listed).to_pylist()}
    form = "o-{}" if column == "id" else "k{}"
    assert texts == {"lost": form.format(4), "doubled": form.format(7), "aborted": form.format(100), "no record": "other"}
    assert ingest(written(tmp_path / "exact", [*kept, named["o-4"]]), *how)[0] == 0, "one row for the id that was sent twice"


def test_what_kafka_has_deleted_is_unverifiable_and_no_fault(ingest: Ingest, topics: Topics, filled: str, tmp_path: Path) -> None:
    rows = rows_of(topics, filled)
    table = written(tmp_path / "table", [row for row in rows if row["id"] != "o-2"])
    assert ingest(table, "--topic", filled, "--json")[0] == 1
    with admin(topics.servers, timeout_s=15) as client:
        client.delete_records({TopicPartition(filled, 0): 3})
    code, document = ingest(table, "--topic", filled, "--json")
    (row,) = document["tables"]
    assert (code, row["expired_offsets"], sum(row["unverifiable_rows"].values())) == (0, 3, 2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "AUDIT_COLUMNS"),
        (("--partition-column", "id"), "AUDIT_COLUMNS"),
        (("--event-id", "id"), "AUDIT_COLUMNS"),
        (("--event-id", "id,n", "--record-id", "key"), "AUDIT_COLUMNS"),
        (("--event-id", "ib", "--record-id", "key"), "AUDIT_COLUMN"),
        (("--event-id", "price", "--record-id", "key"), "AUDIT_COLUMN"),
        (("--event-id", "id", "--record-id", "id"), "AUDIT_RECORD_ID"),
        (("--event-id", "id", "--record-id", "$.nothing"), "AUDIT_NO_IDS"),
        (("--event-id", "id", "--record-id", "key", "--topic-column", "id"), "AUDIT_TOPIC"),
        (("--from", "x"), "AUDIT_RANGE"),
        (("--out", "list.txt"), "AUDIT_OUT"),
    ],
)
def test_options_that_do_not_fit_the_table_or_the_topic_are_refused(
    ingest: Ingest, filled: str, tmp_path: Path, words: tuple[str, ...], code: str
) -> None:
    table = written(tmp_path / "table", [{"id": "o-1", "n": 1, "price": 1.5}])
    exit_code, document = ingest(table, "--topic", filled, *words, "--json")
    assert (exit_code, document["error"]["code"]) == (2, code)


def test_a_folder_without_a_table_and_a_missing_topic_are_named(ingest: Ingest, filled: str, tmp_path: Path) -> None:
    assert ingest(str(tmp_path), "--topic", filled, "--json")[1]["error"]["code"] == "TABLE_MISSING"
    assert ingest(written(tmp_path / "t", [{"id": "1"}]), "--topic", "no-such", "--json")[1]["error"]["code"] == "TOPIC_UNKNOWN"
