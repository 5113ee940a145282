"""The chain as it is often written by hand: commit, then send; consume with auto commit; call the API again after a time-out."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import urllib3
from kafka import KafkaConsumer, KafkaProducer
from sqlalchemy import Engine
from urllib3.exceptions import HTTPError

from ingest.lab.payments.bookkeeping import Books
from ingest.lab.payments.chain import API_TIMEOUT_S
from ingest.lab.payments.payment import NAIVE_TOPIC, Stage, StageSettings, Step, run_stage

books: Final = Books.named("naive_")

_ATTEMPTS: Final = 3


def application(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Store each payment, then send it: a kill between the two loses it."""
    producer = KafkaProducer(bootstrap_servers=given.servers, acks="all")
    for number, made in books.to_order(engine, given):
        with engine.begin() as connection:
            connection.execute(books.payments.insert(), {"number": number, **made.json()})
        step("stored")
        producer.send(NAIVE_TOPIC, json.dumps(made.json()).encode(), key=made.account.encode()).get(timeout=30)
    producer.close()


def consumer(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Book and charge each payment. Kafka's client commits the offsets by a timer."""
    # A static member, as in our chain: after the kill it goes on at once.
    options = {"group_id": "naive", "group_instance_id": "naive-0", "auto_offset_reset": "earliest"}
    reader = KafkaConsumer(NAIVE_TOPIC, bootstrap_servers=given.servers, **options)
    http = urllib3.PoolManager(retries=False)
    while not stop():
        for record in (record for records in reader.poll(200).values() for record in records):
            made = json.loads(record.value)
            with engine.begin() as connection:
                connection.execute(books.bookings.insert(), {"payment_id": made["payment_id"], "amount_cents": made["amount_cents"]})
            _charge(http, given.service_url, record.value)
            step("charged")
    reader.close()


def _charge(http: urllib3.PoolManager, url: str, request: bytes) -> None:
    """Try three times, each time under a new key, and give up."""
    for _ in range(_ATTEMPTS):
        headers: dict[str, Any] = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
        try:
            if http.request("POST", url, body=request, headers=headers, timeout=API_TIMEOUT_S, retries=False).status < 300:
                return
        except HTTPError:
            pass
        time.sleep(0.1)


STAGES: Final[Mapping[str, Stage]] = {
    "application": application,
    "consumer": consumer,
}

if __name__ == "__main__":
    run_stage(STAGES)
