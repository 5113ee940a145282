"""The demo's last part: payments that every rule of the contract lets pass and the suite does not, what that looks like, and SQL."""

from __future__ import annotations

import json
import sys
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass

from kafka import KafkaProducer

from ingest import event_id
from ingest.contract import Contract
from ingest.local.demo_child import Child
from ingest.local.demo_pipeline import Pipeline, Say
from ingest.local.interrupt import uninterrupted

ODD = 20
# A method that payments have never had: no rule of the contract forbids it, the suite's set does.
METHOD = "voucher"
QUESTIONS = (("quarantine-by-reason", "orders"), ("rows-by-hour", "payments"), ("failed-expectations", "payments"))
POLL_S = 0.1


@dataclass(frozen=True)
class Quality:
    """What `ingest run --once --check` said of the odd payments and its exit code (1: a critical expectation failed), the answers to
    QUESTIONS, and the seconds that all of it took."""

    exit_code: int
    output: list[str]
    answers: dict[str, list[str]]
    seconds: float


def quality(pipeline: Pipeline, contracts: dict[str, Contract], servers: str, say: Say) -> Quality:
    """Send the odd payments, ingest and check them, ask the questions."""
    began = time.monotonic()
    say("quality", f"{ODD} payments by {METHOD!r} are sent: right by the contract, wrong by expectations/payments.json")
    _send(servers, contracts["payments"].source.topic)
    code, output = _ingest(pipeline, "run", "--once", "--check", "--bootstrap-servers", servers)
    answers = {}
    for name, table in QUESTIONS:
        answers[f"{name} ({table})"] = _ingest(pipeline, "sql", "--question", name, "--table", table, tables=False, checkpoints=False)[1]
    return Quality(code, output, answers, time.monotonic() - began)


def _send(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for number in range(ODD):
        payment = {
            "payment_id": event_id.mint(),
            "order_id": event_id.mint(),
            "method": METHOD,
            "amount": 10 + number,
            "fee": 0.25,
            "currency": "EUR",
            "paid_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "captured": True,
            "attempts": 1,
        }
        producer.send(topic, json.dumps(payment).encode())
    producer.flush()
    producer.close()


def _ingest(pipeline: Pipeline, verb: str, *words: str, tables: bool = True, checkpoints: bool = True) -> tuple[int, list[str]]:
    """One verb on the lake of this pipeline, to its end: exit code and output. Nothing of it is left, also when it is interrupted."""
    named = [contract.name for contract in pipeline.contracts] if tables else []
    places = ["--project", str(pipeline.project), "--lake", str(pipeline.lake)]
    places += ["--checkpoints", str(pipeline.checkpoints)] if checkpoints else []
    command = [sys.executable, "-m", "ingest", verb, *named, *words, *places]
    output = pipeline.folder / f"{verb}-{uuid.uuid4().hex[:6]}.out"
    with ExitStack() as stack:
        with uninterrupted():
            child = Child(command, marker=str(pipeline.lake), output=output, environment=pipeline.environment())
            stack.callback(child.end)
        while (code := child.poll()) is None:
            time.sleep(POLL_S)
        return code, child.lines()
