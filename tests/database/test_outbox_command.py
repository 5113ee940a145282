"""`ingest outbox`, `ingest database` and `ingest postgres` as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url

from ingest.delivery.database.database import connect
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.embedded_postgres import Postgres
from tests.database.shop import Shop, published
from tests.polling import until


def typed(*words: str, **environment: str) -> tuple[int, Any, str]:
    """Run `ingest` with --json. Returns exit code, document and stderr."""
    command = [sys.executable, "-m", "ingest", *words, "--json"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_the_backlog_is_shown_published_retried_and_purged(
    engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str]
) -> None:
    shop, name = Shop(engine), topic()
    shop.place(5, kind=name)
    shop.place(2, kind=f"{name}-missing")
    places = {"INGEST_DATABASE_URL": database_url, "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    assert typed("outbox", "status", **places)[1]["rows"] == 7
    words = ("outbox", "relay", "--once", "--topic", "{aggregatetype}", "--attempts", "1")
    code, document, said = typed(*words, **places)
    assert (code, document["published"], document["parked"]) == (0, 5, 2)
    assert "this relay leads" in said and "2 of its events are parked now" in said
    _, document, _ = typed("outbox", "status", **places)
    assert (document["rows"], document["parked"], len(document["parked_rows"])) == (0, 2, 2)
    assert typed("outbox", "retry", document["parked_rows"][0]["event_id"], **places)[1]["retried"] == 1
    assert typed("outbox", "purge", "--older-than-days", "0", **places)[1]["deleted"] == 5
    assert len(published(broker.bootstrap_servers, name)) == 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_ends_the_relay_after_its_transaction(
    engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str], number: signal.Signals, code: int
) -> None:
    shop, name = Shop(engine), topic()
    words = ["--database-url", database_url, "--bootstrap-servers", broker.bootstrap_servers, "--topic", name]
    relay = subprocess.Popen([sys.executable, "-m", "ingest", "outbox", "relay", *words], stdout=subprocess.PIPE, text=True)
    shop.place(3)
    until(lambda: shop.unpublished() == 0, "the events are published", 60)
    relay.send_signal(number)
    output, _ = relay.communicate(timeout=60)
    assert (relay.returncode, output) == (code, "3 events published, 0 parked, 0 batches sent again\n")


def test_what_is_missing_is_one_error_that_names_the_remedy(new_database: Callable[[], str], database_url: str) -> None:
    code, document, _ = typed("outbox", "status", INGEST_DATABASE_URL=new_database())
    assert (code, document["error"]["code"], document["error"]["remedy"]) == (3, "SCHEMA_MISSING", "ingest database migrate")
    clerk = make_url(database_url).set(username="reader", password="word")
    engine = connect(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'word'")
    engine.dispose()
    code, document, _ = typed("outbox", "retry", INGEST_DATABASE_URL=clerk.render_as_string(hide_password=False))
    assert (code, document["error"]["code"]) == (4, "DATABASE_DENIED")


@pytest.mark.slow  # kafka-python tries for half a minute
def test_a_relay_without_a_broker_ends_with_one_error(database_url: str) -> None:
    code, document, _ = typed("outbox", "relay", "--bootstrap-servers", "127.0.0.1:1", INGEST_DATABASE_URL=database_url)
    assert (code, document["error"]["code"]) == (4, "BROKER_UNREACHABLE")


def test_the_embedded_server_starts_on_its_own_port_and_its_tables_are_migrated(tmp_path: Path, postgres: Postgres) -> None:
    data = ("--data", str(tmp_path / "own"))
    code, document, _ = typed("postgres", "start", *data, "--port", str(postgres.port))
    assert (code, document["error"]["code"]) == (4, "PORT_TAKEN"), "another server answers there"
    try:
        code, document, _ = typed("postgres", "start", *data, "--port", "0")
        url = document["database_url"]
        assert (code, document["started"]) == (0, True) and url != postgres.url
        assert typed("postgres", "start", *data, "--port", "0")[1]["started"] is False
        assert typed("postgres", "status", *data)[:2][0] == 0
        assert typed("database", "migrate", INGEST_DATABASE_URL=url)[1]["after"] == "0001"
        assert typed("database", "status", INGEST_DATABASE_URL=url)[0] == 0
    finally:
        assert typed("postgres", "stop", *data)[1]["stopped"] is True
    assert typed("postgres", "status", *data)[0] == 1
