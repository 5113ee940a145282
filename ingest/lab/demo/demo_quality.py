"""The demo's odd payments, which every row rule accepts and the expectation suite rejects; and its question in SQL."""

from __future__ import annotations

import json
import shlex
import sys
import time
from contextlib import ExitStack

from kafka import KafkaProducer

from ingest.contract import event_id
from ingest.lab.demo.demo_folder import words
from ingest.lab.demo.demo_pipeline import Pipeline
from ingest.lab.interrupt import uninterrupted
from ingest.lab.worker import Worker

ODD = 20
# No row rule of the contract forbids this method; the suite's set of methods does.
METHOD = "voucher"
QUESTION = "SELECT count(*) AS payments, count(DISTINCT payment_id) AS ids, sum(amount) AS amount FROM payments"
POLL_S = 0.1


def send_odd(servers: str, topic: str) -> set[str]:
    """Send the odd payments; returns their ids."""
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    ids = set()
    for number in range(ODD):
        payment = {"payment_id": event_id.mint(), "order_id": event_id.mint(), "method": METHOD, "amount": 10 + number, "fee": 0.25}
        paid_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        payment |= {"currency": "EUR", "paid_at": paid_at, "captured": True, "attempts": 1}
        ids.add(str(payment["payment_id"]))
        producer.send(topic, json.dumps(payment).encode())
    producer.flush()
    producer.close()
    return ids


def answer(pipeline: Pipeline) -> tuple[str, list[str]]:
    """Ask QUESTION of this pipeline's lake: the command line that asks it again, and the lines of the answer."""
    where = ["--project", str(pipeline.project), "--lake", str(pipeline.lake)]
    with ExitStack() as stack:
        with uninterrupted():
            command = [sys.executable, "-m", "ingest", "sql", QUESTION, *where]
            child = Worker(command, output=pipeline.folder / "sql.out", environment=pipeline.environment())
            stack.callback(child.kill)
        while child.poll() is None:
            time.sleep(POLL_S)
        return shlex.join(["ingest", "sql", QUESTION, *words(pipeline.project, pipeline.lake)]), child.lines()
