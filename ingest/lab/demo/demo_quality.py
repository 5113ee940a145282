"""The demo's last part: payments that every rule of the contract lets pass and the suite does not, what that looks like, and SQL."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

from kafka import KafkaProducer

from ingest.contract import event_id
from ingest.lab.demo.demo_pipeline import Pipeline
from ingest.lab.interrupt import uninterrupted
from ingest.lab.worker import Worker

ODD = 20
# A method that payments have never had: no rule of the contract forbids it, the suite's set does.
METHOD = "voucher"
QUESTION = "failed-expectations"
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


def answers(pipeline: Pipeline) -> dict[str, list[str]]:
    """QUESTION, as the command line that asks it of this pipeline's lake → the lines of the answer. Nothing is left of it."""
    words = ["sql", "--question", QUESTION, "--table", "payments", "--project", str(pipeline.project), "--lake", str(pipeline.lake)]
    output = pipeline.folder / f"{QUESTION}.out"
    with ExitStack() as stack:
        with uninterrupted():
            child = Worker([sys.executable, "-m", "ingest", *words], output=output, environment=pipeline.environment())
            stack.callback(child.kill)
        while child.poll() is None:
            time.sleep(POLL_S)
        return {" ".join(["ingest", *words]): child.lines()}
