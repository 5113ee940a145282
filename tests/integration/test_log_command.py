"""`ingest log`: the batches, markers and transactions of a real broker's log, and errors by code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from kafka import TopicPartition

from ingest.lab.broker.broker_probe import admin
from tests.command import exit_code
from tests.integration.test_kafka_log import Topic, finish, plain, send, transactional

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker

pytestmark = pytest.mark.integration


@pytest.fixture
def ingest(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs `ingest log` against the broker. Returns the exit code and the output."""

    def run(*words: str) -> tuple[int, str]:
        code = exit_code("log", *words, "--bootstrap-servers", broker.bootstrap_servers)
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def test_log_shows_batches_markers_and_the_outcome_of_transactions(
    broker: Broker, topic: Topic, ingest: Callable[..., tuple[int, str]]
) -> None:
    name = topic(1)
    plain(broker, name, 6, **{"compression.type": "gzip"})
    with admin(broker.bootstrap_servers, timeout_s=15) as client:
        client.delete_records({TopicPartition(name, 0): 2})
    with transactional(broker) as lost, transactional(broker) as open_:
        lost.begin_transaction()
        send(lost, name, 1)
        finish(broker, name, lost.abort_transaction)
        open_.begin_transaction()
        send(open_, name, 1)
        lost.begin_transaction()
        send(lost, name, 1)
        finish(broker, name, lost.commit_transaction)
        code, text = ingest(name, "--from", "0")
        assert code == 0
        head, titles, *lines = text.splitlines()
        assert head == f"{name} partition 0: log start 2 · last stable 8 · high watermark 11"
        assert titles.split() == ["offsets", "kind", "records", "bytes", "time", "codec", "producer", "transaction"]
        assert [(line.split()[0], line.split()[1], line.split()[-1]) for line in lines] == [
            ("0–1", "expired", "start"),
            ("0–5", "data", "–"),
            ("6", "data", "aborted"),
            ("7", "abort", "aborted"),
            ("8", "data", "open"),
            ("9", "data", "committed"),
            ("10", "commit", "committed"),
        ]
        document = json.loads(ingest(name, "--json")[1])
        assert (document["schema"], document["ok"], document["topic"]) == ("oncelake/log/1", True, name)
        (only,) = document["partitions"]
        assert (only["log_start"], only["last_stable"], only["high_watermark"], only["more"]) == (2, 8, 11, False)
        first = only["lines"][0]
        assert (first["first"], first["last"], first["records"], first["compression"], first["transaction"]) == (0, 5, 6, "gzip", None)
        assert first["time"].endswith("Z")
        assert [line["first"] for line in json.loads(ingest(name, "--limit", "2", "--json")[1])["partitions"][0]["lines"]] == [9, 10]
        code, text = ingest(name, "--from", "6", "--to", "9", "--limit", "2")
        assert (code, text.splitlines()[-1].split(":")[0]) == (0, "  … continues at 8")
        finish(broker, name, open_.abort_transaction)


def test_log_reports_unknown_topics_and_invalid_arguments_by_code(
    broker: Broker, topic: Topic, ingest: Callable[..., tuple[int, str]]
) -> None:
    name = topic(2)
    plain(broker, name, 3)
    assert ingest(name)[1].count("high watermark") == 2
    for code, error, words in (
        (4, "TOPIC_UNKNOWN", ["no-such-topic"]),
        (2, "PARTITION_UNKNOWN", [name, "--partition", "2"]),
        (2, "PARTITION_MISSING", [name, "--from", "1"]),
        (2, "RANGE_INVALID", [name, "--partition", "0", "--from", "2", "--to", "1"]),
        (2, "OFFSET_BEYOND_END", [name, "--partition", "0", "--from", "4"]),
        (2, "OFFSET_BEYOND_END", [name, "--partition", "1", "--to", "1"]),
        (2, "USAGE", [name, "--from", "-1"]),
    ):
        ended, text = ingest(*words, "--json")
        assert (ended, json.loads(text)["error"]["code"], json.loads(text)["schema"]) == (code, error, "oncelake/log/1")
    assert "nothing here" in ingest(name, "--partition", "1")[1]
