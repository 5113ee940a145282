"""`ingest sink`: run, status and dead, as commands in their own processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from ingest.lab.broker.embedded_broker import Broker
from tests.database.sink_scene import SinkScene
from tests.polling import until

# The module registers its verbs when it is imported.
MAIN = "from ingest.cli import sink; from ingest.cli.app import main; main()"
WRITE = "tests.database.sink_instance:pay"


@pytest.fixture
def scene(engine: Engine, database_url: str, broker: Broker, topic: Callable[..., str]) -> Iterator[SinkScene]:
    made = SinkScene(engine, database_url, broker.bootstrap_servers, topic(), 1)
    yield made
    made.close()


def command(scene: SinkScene, *words: str) -> dict[str, Any]:
    """The arguments of subprocess for `ingest sink …`."""
    settings = {"INGEST_DATABASE_URL": scene.url, "INGEST_BOOTSTRAP_SERVERS": scene.servers}
    return {"args": [sys.executable, "-c", MAIN, "sink", *words], "env": {**os.environ, **settings}, "text": True}


def document(scene: SinkScene, *words: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(**command(scene, *words, "--json"), capture_output=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def start(scene: SinkScene, *words: str) -> subprocess.Popen[str]:
    """A running `ingest sink run`."""
    run = ("run", scene.topic, "--topic", scene.topic, "--write", WRITE, *words)
    running: subprocess.Popen[str] = subprocess.Popen(**command(scene, *run), stdout=subprocess.PIPE)
    return running


def test_the_command_stores_events_until_a_signal_and_shows_them(scene: SinkScene) -> None:
    scene.produce(["a", "b", "a", None])
    running = start(scene, "--json")
    until(scene.dead, "the last record is done", 60)
    running.send_signal(signal.SIGTERM)
    done = json.loads(running.communicate(timeout=60)[0])
    assert running.returncode == 0
    assert {name: done[name] for name in ("ok", "stored", "duplicates", "dead")} == {"ok": True, "stored": 2, "duplicates": 1, "dead": 1}
    scene.produce(["c"])
    (row,) = document(scene, "status")["partitions"]
    assert (row["sink"], row["next_offset"], row["lag"]) == (scene.topic, 4, 1)
    assert (row["stored"], row["duplicates"], row["dead"], row["epoch"]) == (2, 1, 1, 1)
    (letter,) = document(scene, "dead", scene.topic)["dead_letters"]
    assert (letter["offset"], letter["event_id"], letter["error"]) == (3, None, "ValueError: the record has no event id")


@pytest.mark.slow
def test_ctrl_c_ends_the_command_after_its_transaction(scene: SinkScene) -> None:
    scene.produce(map(str, range(100)))
    running = start(scene, "--batch", "10")
    until(scene.paid, "the first payment", 60)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "events stored" in output
    scene.consistent()


@pytest.mark.slow
def test_once_ends_when_nothing_arrives(scene: SinkScene) -> None:
    scene.produce(map(str, range(100)))
    output, _ = start(scene, "--once").communicate(timeout=60)
    assert output.startswith("100 events stored")
    scene.complete()


@pytest.mark.slow
def test_what_the_command_refuses_and_what_it_prints_for_people(scene: SinkScene) -> None:
    run = ("run", "s", "--topic", scene.topic, "--once")
    assert document(scene, *run, "--write", "no.such:thing", code=2)["error"]["code"] == "SINK_WRITE_UNKNOWN"
    assert document(scene, *run, "--write", WRITE, "--event-id", "body", code=2)["error"]["code"] == "SINK_EVENT_ID"
    scene.produce([None, "a"])
    scene.run(2)
    for words, shown in ((("status",), f"{scene.topic}[0]"), (("dead",), f"{scene.topic}[0]@0  –  ValueError: the record has no event id")):
        done = subprocess.run(**command(scene, *words), capture_output=True, timeout=120, check=True)
        assert shown in done.stdout
