"""`ingest trace`: where an event id was seen in the database and in Kafka. tests/integration/test_event_ids.py has the lake's part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from ingest.delivery.effects import Effects, HttpApi
from ingest.delivery.kafka import AtLeastOnce, Producer
from ingest.delivery.outbox.relay import Relay
from ingest.delivery.sink import Sink, header
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.payment_service import PaymentService
from tests.command import exit_code
from tests.database.shop import Shop


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run `ingest` with these arguments in this process. Returns exit code and output."""
    code = exit_code(*words)
    return code, capsys.readouterr().out


def test_an_event_is_followed_from_the_outbox_through_kafka_and_sink_to_the_api(
    engine: Engine,
    database_url: str,
    broker: Broker,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, name = Shop(engine), topic()
    event_id, parked = shop.place()[0], shop.place(kind=f"{name}-missing")[0]
    with Relay(engine, broker.bootstrap_servers, topic="{aggregatetype}", attempts=1) as relay:
        relay.run(idle_s=0.05)
    with Producer(AtLeastOnce(), broker.bootstrap_servers) as producer:
        for _ in range(2):
            producer.send(name, b"1", key=b"1", headers=[("id", event_id.encode())])

    def write(connection: Connection, records: Any) -> None:
        """Stores nothing of its own."""

    with Sink(name, name, write, engine, broker.bootstrap_servers, event_id=header("id")) as sink:
        sink.run(stop=lambda: sink.counts.duplicates == 1)
    with PaymentService(tmp_path / "charges.jsonl") as service:
        service.fault("error_after")
        api = HttpApi(service.url, look_up_url=f"{service.url}?key={{key}}", key_valid_s=60, timeout_s=2)
        Effects("charge", api, engine, backoff_s=0.01).perform(event_id, b'{"amount_cents": 5}')
    monkeypatch.setenv("INGEST_DATABASE_URL", database_url)
    words = ("trace", event_id, "--bootstrap-servers", broker.bootstrap_servers, "--project", str(tmp_path), "--scan", name)
    code, output = typed(capsys, *words, "--json")
    document = json.loads(output)
    seen = [(each["place"], each["name"]) for each in document["sightings"]]
    assert (code, document["ok"]) == (0, True)
    assert seen == [("outbox", "order"), ("sink", name), ("effect", "charge"), ("kafka", name), ("kafka", name)]
    by_place = {each["place"]: each for each in document["sightings"]}
    assert by_place["sink"]["details"]["duplicates"] == 1
    assert [step.split()[2].rstrip(":") for step in by_place["effect"]["history"]] == ["SENDING", "UNKNOWN", "SUCCESS"]
    assert [each["details"]["offset"] for each in document["sightings"] if each["place"] == "kafka"] == [0, 1]
    code, output = typed(capsys, *words)
    assert code == 0 and "1 copy skipped" in output and "UNKNOWN: HTTP 500" in output
    code, output = typed(capsys, "trace", parked, "--project", str(tmp_path))
    assert code == 0 and "parked" in output and "no topic" in output
    code, output = typed(capsys, "trace", "nobody's id", "--project", str(tmp_path))
    assert code == 1 and "was seen nowhere" in output
