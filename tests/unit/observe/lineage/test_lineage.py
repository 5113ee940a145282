"""`ingest lineage`: what the events say, that each is sent at least once with the same run id, and what happens if it is not taken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from ingest.delta.batch_commit import BatchId, State
from ingest.delta.posting import Key, Posting
from ingest.kafka.topic_state import TopicId
from ingest.observe.lineage import destination
from ingest.observe.lineage.destination import EventFile, LineageServer
from ingest.observe.lineage.lineage_event import EventMaker
from ingest.observe.lineage.sending import Delivered, send_table
from ingest.observe.lineage.sent import Cursor, Sent
from ingest.runtime.errors import InvalidEnvironment, InvalidInput
from ingest.runtime.places import Places
from tests.raw_server import again_and_again, served
from tests.unit.observe.lineage.lineage_server import Received, lineage_server
from tests.unit.verify.proof_lake import CONTRACT, Lake, sums

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[4]
SPEC = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (Path(__file__).parent / "spec").glob("*.json")}
REGISTRY: Any = Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in SPEC.values())
WHEN = datetime.fromisoformat("2026-03-01T12:00:00Z")


@pytest.fixture
def full(lake: Lake) -> Lake:
    """Three batches in two epochs; the first one quarantined a record."""
    lake.batch(0, 10, range(8), [8], duplicates=1)
    lake.batch(10, 12, [10, 11])
    lake.start()
    lake.batch(12, 20, range(12, 17), gap=3)
    lake.keep()
    return lake


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with lineage_server() as received:
        yield received


def maker(lake: Lake, **more: Any) -> EventMaker:
    return EventMaker(CONTRACT, lake.places, "broker:9092", **more)


def send(lake: Lake, destination: Any, *, since: datetime | None = None, by_epoch: bool = False) -> Delivered:
    try:
        return send_table(maker(lake), destination, since, by_epoch=by_epoch)
    finally:
        destination.close()


def written(lake: Lake, path: Path, **more: Any) -> list[dict[str, Any]]:
    """All events in the file after a call."""
    send(lake, EventFile(path), **more)
    return [json.loads(line) for line in path.read_text().splitlines()]


def validated(lake: Lake, run: str, at: datetime, *successes: bool) -> None:
    all_validated(lake, {run: at}, *successes)


def all_validated(lake: Lake, runs: dict[str, datetime], *successes: bool) -> None:
    rows = [
        {
            "run_id": run,
            "run_at": at,
            "version_to": 3,
            "number": number,
            "expectation": "expect_column_values_to_not_be_null",
            "column": "id",
            "severity": "critical" if number == 0 else "info",
            "success": success,
            "unexpected_values": '["secret value"]',
        }
        for run, at in runs.items()
        for number, success in enumerate(successes)
    ]
    write_deltalake(lake.places.quality, pa.Table.from_pylist(rows), mode="append")


def batches(events: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    found = [event["run"]["facets"]["oncelake_batches"] for event in events if "oncelake_batches" in event["run"]["facets"]]
    return [(each["epoch"], each["firstBatch"], each["lastBatch"]) for each in found]


def facets(node: Any) -> Iterator[dict[str, Any]]:
    """All facets anywhere in an event."""
    if isinstance(node, dict):
        if "_schemaURL" in node:
            yield node
        for each in node.values():
            yield from facets(each)
    elif isinstance(node, list):
        for each in node:
            yield from facets(each)


def test_a_batch_is_a_run_from_offsets_to_a_version(full: Lake, tmp_path: Path) -> None:
    first, second, third = written(full, tmp_path / "events.ndjson")
    assert (first["eventType"], first["job"]["namespace"], first["job"]["name"]) == ("COMPLETE", "oncelake", "shop.orders")
    (topic,) = first["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "orders")
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 10
    offsets = topic["inputFacets"]["oncelake_offsets"]
    assert (offsets["topicId"], offsets["ranges"]) == ("id", [{"partition": 0, "start": 0, "end": 10}])
    target, quarantine = first["outputs"]
    assert (target["namespace"], target["name"]) == ("file", full.places.target)
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert target["facets"]["version"]["datasetVersion"] == "1"
    assert target["facets"]["symlinks"]["identifiers"][0]["name"] == "shop.orders"
    assert (quarantine["name"], quarantine["outputFacets"]["outputStatistics"]["rowCount"]) == (full.places.quarantine, 1)
    assert first["run"]["facets"]["oncelake_batches"]["duplicate"] == 1
    assert [len(event["outputs"]) for event in (second, third)] == [1, 1], "nothing was quarantined"
    assert third["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 5 and batches([third]) == [(2, 2, 2)]


def test_the_contract_describes_only_batches_that_were_decoded_under_it(full: Lake, tmp_path: Path) -> None:
    hashes = ["hash", CONTRACT.hash]
    for epoch, hash in enumerate(hashes, 1):
        full.ledger.update(new_values={"contract_hash": hash}, predicate=f"epoch = {epoch}")
    *older, newest = written(full, tmp_path / "events.ndjson")
    assert not [event for event in older if "schema" in event["outputs"][0]["facets"]]
    described = newest["outputs"][0]["facets"]
    names = {field["name"]: field["type"] for field in described["schema"]["fields"]}
    assert names["id"] == "BIGINT" and names["_offset"] == "BIGINT"
    (source,) = described["columnLineage"]["fields"]["id"]["inputFields"]
    assert (source["namespace"], source["name"], source["field"]) == ("kafka://broker:9092", "orders", "id")
    assert "_offset" not in described["columnLineage"]["fields"]


def test_an_epoch_of_two_topics_reads_both(full: Lake, tmp_path: Path) -> None:
    full.topic, full.shift = TopicId("returns", "other"), 100
    full.batch(0, 4, range(4))
    full.keep()
    full.ledger.update(new_values={"contract_hash": CONTRACT.hash})
    *_, newest = written(full, tmp_path / "events.ndjson", by_epoch=True)
    facets = [each["inputFacets"] for each in newest["inputs"]]
    assert [each["name"] for each in newest["inputs"]] == ["orders", "returns"]
    assert [each["inputStatistics"]["rowCount"] for each in facets] == [5, 4]
    assert [(each["oncelake_offsets"]["topicId"], each["oncelake_offsets"]["ranges"]) for each in facets] == [
        ("id", [{"partition": 0, "start": 12, "end": 20}]),
        ("other", [{"partition": 0, "start": 0, "end": 4}]),
    ]
    sources = newest["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"]
    assert [each["name"] for each in sources] == ["orders", "returns"]


def test_a_validation_run_becomes_assertions_without_values(full: Lake, tmp_path: Path) -> None:
    validated(full, "a", WHEN, True, False)
    text = json.dumps(event := written(full, tmp_path / "events.ndjson")[-1])
    assert event["job"]["name"] == "shop.orders.check" and event["outputs"] == []
    (target,) = event["inputs"]
    assert (target["name"], target["facets"]["version"]["datasetVersion"]) == (full.places.target, "3")
    assertions = target["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["success"], each["severity"], each["column"]) for each in assertions] == [(True, "error", "id"), (False, "warn", "id")]
    assert "secret value" not in text


def test_events_and_facets_are_valid_by_the_schemas_of_openlineage(full: Lake, tmp_path: Path) -> None:
    full.ledger.update(new_values={"contract_hash": CONTRACT.hash})
    validated(full, "a", WHEN, True, False)
    checker = Draft202012Validator.FORMAT_CHECKER
    checked = set()
    for event in written(full, tmp_path / "events.ndjson"):
        Draft202012Validator({"$ref": event["schemaURL"]}, registry=REGISTRY, format_checker=checker).validate(event)
        UUID(event["run"]["runId"])
        for facet in facets(event):
            if facet["_schemaURL"].startswith("https://"):
                Draft202012Validator({"$ref": facet["_schemaURL"]}, registry=REGISTRY, format_checker=checker).validate(facet)
                checked.add(facet["_schemaURL"].rpartition("/")[2])
    assert checked == SPEC.keys() - {"OpenLineage"}


def test_a_batch_is_sent_when_its_rows_are_counted(full: Lake, tmp_path: Path) -> None:
    """Delta in Spark tells only afterwards what a MERGE has inserted."""
    full.batch(20, 30, range(20, 28), opened=True)
    full.keep()
    path = tmp_path / "events.ndjson"
    assert len(written(full, path)) == 3
    said = Posting(Key(2, 3, 0, 0), "batch", target=sums(BatchId(2, 3), 0, range(20, 28), range(20, 28)), present=2)
    full.rows((), batch_commit=full.batch_commit(State(), full.number, said))
    full.keep()
    *_, newest = written(full, path)
    assert batches([newest]) == [(2, 3, 3)] and newest["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert newest["run"]["facets"]["oncelake_batches"]["duplicate"] == 2


def test_a_batch_whose_rows_nobody_can_count_any_more_does_not_hold_back_the_later_ones(full: Lake, tmp_path: Path) -> None:
    full.batch(20, 30, range(20, 28), opened=True)
    full.batch(30, 40, range(30, 40))
    full.keep()
    assert batches(written(full, tmp_path / "events.ndjson"))[-2:] == [(2, 3, 3), (2, 4, 4)]


def test_a_second_call_sends_only_what_is_new(full: Lake, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    validated(full, "b", WHEN, True)
    assert len(written(full, path)) == 4
    assert len(written(full, path)) == 4
    full.batch(20, 21, [20])
    full.keep()
    validated(full, "a", WHEN - timedelta(minutes=5), True)  # it began earlier and took longer
    assert len(written(full, path)) == 6
    assert len(written(full, path)) == 6


def test_each_destination_has_its_own_position_and_a_new_file_gets_everything(full: Lake, tmp_path: Path) -> None:
    assert len(written(full, tmp_path / "a.ndjson")) == 3
    assert len(written(full, tmp_path / "b.ndjson")) == 3
    (tmp_path / "a.ndjson").unlink()
    assert len(written(full, tmp_path / "a.ndjson")) == 3


def test_sent_again_a_batch_has_the_same_run_id(full: Lake, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    first = written(full, path)
    Path(Cursor(full.places, "").path).write_text("{torn")
    again = written(full, path)[3:]
    assert again == first and len({event["run"]["runId"] for event in first}) == 3
    other = EventMaker(CONTRACT, full.places, "broker:9092", "elsewhere").of_batches(full.books().batches[:1])
    assert other.run.runId not in {event["run"]["runId"] for event in first}


def test_since_sends_again_from_a_time_on(full: Lake, tmp_path: Path) -> None:
    for epoch in (1, 2):
        full.ledger.update(new_values={"committed_at": WHEN + timedelta(hours=epoch)}, predicate=f"epoch = {epoch}")
    path = tmp_path / "events.ndjson"
    written(full, path)
    assert batches(written(full, path, since=WHEN + timedelta(hours=2))[3:]) == [(2, 2, 2)]


def test_since_does_not_leave_out_what_an_earlier_call_could_not_send(full: Lake, tmp_path: Path) -> None:
    for epoch, batch in ((1, 2), (1, 3), (2, 2)):
        at = WHEN + timedelta(hours=epoch, minutes=batch)
        full.ledger.update(new_values={"committed_at": at}, predicate=f"epoch = {epoch} AND batch = {batch}")
    path, cursor = tmp_path / "events.ndjson", Cursor(full.places, f"file:{tmp_path}/events.ndjson")
    path.write_text("")
    cursor.write(Sent(1, 2))
    validated(full, "a", WHEN, True)
    events = written(full, path, since=WHEN + timedelta(hours=2))
    assert batches(events) == [(1, 3, 3), (2, 2, 2)] and len(events) == 3, "the unsent batch and validation run before that time, too"
    assert len(written(full, path)) == 3, "the position covers them all"
    first = written(full, tmp_path / "new.ndjson", since=WHEN + timedelta(hours=2))
    assert batches(first) == [(2, 2, 2)] and len(first) == 1, "a new destination wants nothing older"


def test_many_validation_runs_within_the_overlap_are_sent_once(full: Lake, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    all_validated(full, {f"run-{number}": WHEN + timedelta(minutes=number) for number in range(130)}, True)
    assert len(written(full, path)) == 3 + 130
    assert len(written(full, path)) == 3 + 130
    validated(full, "late", WHEN + timedelta(days=1, minutes=100), True)
    assert len(written(full, path)) == 3 + 131
    kept = Cursor(full.places, f"file:{path}").read().validation_runs
    assert [id for _, id in kept] == [*(f"run-{number}" for number in range(100, 130)), "late"], "only those of the overlap"


def test_an_epoch_is_one_run_that_grows(full: Lake, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    first, second = written(full, path, by_epoch=True)
    assert batches([first, second]) == [(1, 2, 3), (2, 2, 2)]
    assert first["inputs"][0]["inputFacets"]["oncelake_offsets"]["ranges"] == [{"partition": 0, "start": 0, "end": 12}]
    assert first["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 10
    full.batch(20, 22, [20, 21])
    full.keep()
    *_, grown = written(full, path, by_epoch=True)
    assert batches([grown]) == [(2, 2, 3)] and grown["run"]["runId"] == second["run"]["runId"]
    assert grown["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert len(written(full, path, by_epoch=True)) == 3


def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next(full: Lake, tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text('{"eventType": "COMP')
    send(full, EventFile(path))
    torn, *whole = path.read_text().splitlines()
    assert torn == '{"eventType": "COMP' and len([json.loads(line) for line in whole]) == 3


def test_events_are_posted_with_the_key(full: Lake, server: Received) -> None:
    delivered = send(full, LineageServer(server.url, "s3cret"))
    assert (delivered.events, delivered.newest_batch, batches(server.events)) == (3, "2/2", [(1, 2, 2), (1, 3, 3), (2, 2, 2)])
    assert set(server.requests) == {("POST", "/api/v1/lineage", "Bearer s3cret")}
    assert "s3cret" not in Path(Cursor(full.places, "").path).read_text()


def test_a_path_in_the_url_replaces_the_usual_one(full: Lake, server: Received) -> None:
    send(full, LineageServer(f"{server.url}/proxy/lineage", None))
    assert {path for _, path, _ in server.requests} == {"/proxy/lineage"}


def test_a_server_that_fails_for_a_moment_is_asked_again(full: Lake, server: Received) -> None:
    server.answers = [500, 503]
    assert send(full, LineageServer(server.url, None)).events == 3
    assert len(server.events) == 3 and len(server.requests) == 5


@pytest.mark.parametrize(
    "of",
    [
        "[" * 100_000,
        '{"epoch": "0) OR (1 = 1", "batch": 0}',
        '{"epoch": null}',
        '{"validated_at": "yesterday"}',
        '{"validated_at": "2026-11-01T00:00:00"}',
        '{"validation_runs": [["2026-11-01T00:00:00", "run"]]}',
        '{"validation_runs": 5}',
        "5",
    ],
)
def test_what_is_no_cursor_counts_as_nothing_sent(tmp_path: Path, of: str) -> None:
    cursor = Cursor(Places(str(tmp_path), str(tmp_path), "shop", "orders"), "file:x")
    path = Path(cursor.path)
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"file:x": {of}}}')
    assert cursor.read() == Sent()
    cursor.write(Sent(1, 2, "2026-11-01T00:00:00+00:00", (("2026-11-01T00:00:00+00:00", "run"),)))
    assert cursor.read() == Sent(1, 2, "2026-11-01T00:00:00+00:00", (("2026-11-01T00:00:00+00:00", "run"),))


def test_if_the_server_goes_on_failing_nothing_counts_as_sent(full: Lake, server: Received) -> None:
    server.answers = [500] * 3
    with pytest.raises(InvalidEnvironment, match="answered 500"):
        send(full, LineageServer(server.url, None))
    assert server.events == [] and Cursor(full.places, server.url).read() == Sent()
    assert send(full, LineageServer(server.url, None)).events == 3


def test_what_was_taken_before_a_failure_is_not_sent_again(full: Lake, server: Received) -> None:
    server.answers = [201, 400]
    with pytest.raises(InvalidEnvironment, match="answered 400"):
        send(full, LineageServer(server.url, None))
    assert send(full, LineageServer(server.url, None)).events == 2
    assert batches(server.events) == [(1, 2, 2), (1, 3, 3), (2, 2, 2)]


@pytest.mark.parametrize(
    ("answers", "code", "sent"),
    [([201, 413], "LINEAGE_REFUSED", 3 + 1), ([401], "LINEAGE_NOT_SENT", 0), ([429] * 3, "LINEAGE_NOT_SENT", 0)],
)
def test_a_refused_event_stops_only_its_own_table(full: Lake, server: Received, answers: list[int], code: str, sent: int) -> None:
    other = Places(full.places.lake, full.places.checkpoints, "shop", "returns")
    shutil.copytree(full.places.root, other.root)
    tables = Path(full.places.lake).parent / "tables"
    tables.mkdir()
    (tables / "returns.yml").write_text(CONTRACT.model_copy(update={"table": "returns"}).to_json(), encoding="utf-8")
    server.answers = list(answers)
    done = command(full, "--url", server.url, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"], len(server.events)) == (4, code, sent)
    assert code == "LINEAGE_NOT_SENT" or "answered 413 to the event of shop.orders, run id 0" in error["found"]


def test_a_redirect_is_a_failure_because_it_loses_the_event(full: Lake, server: Received) -> None:
    server.answers = [302]
    with pytest.raises(InvalidEnvironment, match="answered 302, a redirect"):
        send(full, LineageServer(server.url, None))
    assert [method for method, _, _ in server.requests] == ["POST"] and Cursor(full.places, server.url).read() == Sent()


def test_a_server_that_answers_little_by_little_does_not_hold_up_the_command(full: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "ANSWER_WITHIN_S", 0.5)
    with served(again_and_again(b"HTTP/1.1 201 Created\r\n", b"X-More: 1\r\n", 0.1)) as place:
        began = time.monotonic()
        with pytest.raises(InvalidEnvironment, match=r"did not answer within 0\.5 s"):
            send(full, LineageServer(f"http://{place}", None))
        assert time.monotonic() - began < 4


def test_an_answer_without_end_is_not_read_to_its_end(full: Lake) -> None:
    endless = b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served(again_and_again(endless, b"10000\r\n" + b"x" * 65536 + b"\r\n", 0)) as place:
        assert send(full, LineageServer(f"http://{place}", None)).events == 3


def test_no_server_is_an_error_without_the_secrets_of_the_url(full: Lake) -> None:
    with pytest.raises(InvalidEnvironment, match="LINEAGE_NOT_SENT") as raised:
        send(full, LineageServer("http://user:s3cret@127.0.0.1:1/?token=s3cret", "s3cret"))
    assert "s3cret" not in str(raised.value) and "http://127.0.0.1:1/" in str(raised.value)
    with pytest.raises(InvalidInput, match="LINEAGE_URL_INVALID"):
        LineageServer("lineage.example", None)


def test_a_table_without_batches_sends_nothing(tmp_path: Path, lake: Lake) -> None:
    assert written(lake, tmp_path / "events.ndjson") == []


def command(lake: Lake, *words: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    project = Path(lake.places.lake).parent
    (project / "tables").mkdir(exist_ok=True)
    (project / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")
    places = {"INGEST_PROJECT": str(project), "INGEST_LAKE": lake.places.lake, "INGEST_CHECKPOINTS": lake.places.checkpoints}
    call = [sys.executable, "-c", f"{code}\nfrom ingest.cli.app import main; main()", "lineage", *words]
    settings = {**os.environ, **places, **environment}
    return subprocess.run(call, cwd=PROJECT, env=settings, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_prints_what_it_sent(full: Lake, tmp_path: Path) -> None:
    done = command(full, "--out", str(tmp_path / "events.ndjson"), "--json")
    (table,) = json.loads(done.stdout)["tables"]
    assert (done.returncode, table["table"], table["batches"], table["newest_batch"]) == (0, "shop.orders", 3, "2/2"), done.stderr
    done = command(full, "--out", str(tmp_path / "events.ndjson"))
    assert done.stdout == "shop.orders: 0 batches and 0 validation runs in 0 events, up to batch 2/2\n"


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        ([], "LINEAGE_DESTINATION", 2),
        (["--out", "x", "--url", "http://127.0.0.1:1"], "LINEAGE_DESTINATION", 2),
        (["--url", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY"], "LINEAGE_KEY_MISSING", 2),
        (["--url", "http://127.0.0.1:1", "--since", "yesterday"], "LINEAGE_SINCE_INVALID", 2),
        (["--url", "http://127.0.0.1:1"], "LINEAGE_NOT_SENT", 4),
    ],
)
def test_an_error_names_its_remedy(full: Lake, words: list[str], code: str, exit_code: int) -> None:
    done = command(full, *words, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["error"]["code"]) == (exit_code, False, code)


def test_without_the_extra_the_command_says_what_to_install(full: Lake) -> None:
    done = command(full, "--out", "x", code="import sys; sys.modules['openlineage'] = None")
    assert done.returncode == 4 and "EXTRA_MISSING" in done.stderr and "extra `lineage`" in done.stderr
