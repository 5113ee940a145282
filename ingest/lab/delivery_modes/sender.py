"""A producer as a process of its own, which can be killed: `python -m ingest.lab.delivery_modes.sender '{…}'`.

It brings the records 0, 1, 2, … into a topic, in groups, and goes on where it was when it is started again:

- at_most_once notes that a group is done, then sends it;
- at_least_once and idempotent send a group, wait until it is acknowledged, then note it;
- exactly_once writes how far it is into a topic of its own, in the transaction of the group, and looks there.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.kafka.delivery.delivery_errors import DeliveryFailed, OutcomeUnknown, TransactionAborted
from ingest.kafka.delivery.producer import Producer
from ingest.kafka.delivery.transactional import TransactionalProducer
from ingest.lab.delivery_modes import candidate
from ingest.lab.delivery_modes.crash_point import Doom
from ingest.lab.delivery_modes.mode_verdict import Reader
from ingest.lab.delivery_modes.reported import Told


@dataclass(frozen=True)
class Sending:
    """What a sender has to do; `pause_s` rests between two groups, so that a fault finds it at work."""

    mode: str
    servers: str
    topic: str
    position: str
    partitions: int
    records: int
    group: int
    told: str
    pause_s: float = 0.0
    doom: dict[str, Any] | None = field(default=None)


def send(job: Sending) -> None:
    """Bring in what is not yet in. Raises the errors of the producer of the mode."""
    told, doom = Told(Path(job.told)), Doom.of(job.doom)
    if job.mode == "exactly_once":
        _in_transactions(job, told, doom)
    elif job.mode == "at_most_once":
        _once(job, told, doom)
    else:
        _until_acknowledged(job, told, doom)


def _once(job: Sending, told: Told, doom: Doom) -> None:
    with Producer(candidate.plain(job.mode), job.servers) as producer:
        while (first := told.after("begun")) < job.records:
            end = min(first + job.group, job.records)
            told.write("begun", first, end)
            for number in range(first, end):
                producer.send(job.topic, b"%d" % number, partition=number % job.partitions)
                doom.reached("handed", number)
            doom.reached("delivered", end)
            time.sleep(job.pause_s)


def _until_acknowledged(job: Sending, told: Told, doom: Doom) -> None:
    with Producer(candidate.plain(job.mode), job.servers) as producer:
        while (first := told.after("delivered")) < job.records:
            end = min(first + job.group, job.records)
            told.write("begun", first, end)
            try:
                for number in range(first, end):
                    producer.send(job.topic, b"%d" % number, partition=number % job.partitions)
                    doom.reached("handed", number)
                producer.flush()
            except DeliveryFailed:
                told.write("failed", first, end)
                continue
            doom.reached("delivered", end)
            told.write("delivered", first, end)
            time.sleep(job.pause_s)


def _in_transactions(job: Sending, told: Told, doom: Doom) -> None:
    with TransactionalProducer(candidate.transactional(job.position), job.servers) as producer:
        first = _committed_position(job)
        while first < job.records:
            end = min(first + job.group, job.records)
            told.write("begun", first, end)
            try:
                with producer.transaction() as transaction:
                    for number in range(first, end):
                        transaction.send(job.topic, b"%d" % number, partition=number % job.partitions)
                        doom.reached("handed", number)
                    transaction.send(job.position, b"%d" % end, key=b"position", partition=0)
            except TransactionAborted:
                told.write("aborted", first, end)
                continue
            except OutcomeUnknown:
                told.write("unknown", first, end)
                first = _committed_position(job)
                continue
            doom.reached("delivered", end)
            told.write("delivered", first, end)
            first = end
            time.sleep(job.pause_s)


def _committed_position(job: Sending) -> int:
    """How far the committed transactions have come. The producer was initialised before: none of them is open any more."""
    with Reader(job.servers, job.position, "read_committed") as reader:
        return max((number for found in reader.read() for _, number in found), default=0)


if __name__ == "__main__":
    send(Sending(**json.loads(sys.argv[1])))
