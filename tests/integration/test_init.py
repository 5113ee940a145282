"""A project that `ingest init` starts from a topic works at once: run, check and verify succeed without an edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

if TYPE_CHECKING:
    from ingest.lab.broker.embedded_broker import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_a_project_from_a_topic_runs_and_balances_without_an_edit(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(2)
    folder = tmp_path / "shop"
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
        for number in [*range(20), 3]:  # the last one is a copy
            event = {"order_id": f"o{number}", "amount": 12.5, "at": "2024-05-01T10:00:00Z", "lines": [{"sku": "a", "quantity": 1}]}
            producer.send(name, key=b"c", value=json.dumps(event | ({} if number % 2 else {"note": "x"})).encode()).get(30)
        producer.send(name, value=b"not json").get(30)

    def ingest(*words: str) -> Any:
        environment = {**os.environ, "INGEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "INGEST_MASTER": "local[2]"}
        command = [sys.executable, "-c", "from ingest.cli.app import main; main()", *words]
        cwd = folder if folder.exists() else tmp_path
        done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout) if "--json" in words else done.stdout

    made = ingest("init", str(folder), "--topic", name, "--json")
    assert "1 of them are not JSON objects" in " ".join(made["tables"][0]["notes"])
    ingest("run", "--once", "--check")
    (table,) = ingest("verify", "--json")["tables"]
    assert table["balanced"]
    assert {key: table["total"][key] for key in ("inserted", "duplicate", "quarantined")} == {
        "inserted": 20,
        "duplicate": 1,
        "quarantined": 1,
    }
