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
from ingest.lab.delivery_modes.crash_point import CrashPoint
from ingest.lab.delivery_modes.mode_verdict import Reader
from ingest.lab.delivery_modes.reported import Reported


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
    reported: str
    pause_s: float = 0.0
    crash_point: dict[str, Any] | None = field(default=None)


def send(job: Sending) -> None:
    """Bring in what is not yet in. Raises the errors of the producer of the mode."""
    reported, crash_point = Reported(Path(job.reported)), CrashPoint.of(job.crash_point)
    if job.mode == "exactly_once":
        _in_transactions(job, reported, crash_point)
    elif job.mode == "at_most_once":
        _once(job, reported, crash_point)
    else:
        _until_acknowledged(job, reported, crash_point)


def _once(job: Sending, reported: Reported, crash_point: CrashPoint) -> None:
    with Producer(candidate.plain(job.mode), job.servers) as producer:
        while (first := reported.after("begun")) < job.records:
            end = min(first + job.group, job.records)
            reported.write("begun", first, end)
            for number in range(first, end):
                producer.send(job.topic, b"%d" % number, partition=number % job.partitions)
                crash_point.reached("handed", number)
            crash_point.reached("delivered", end)
            time.sleep(job.pause_s)


def _until_acknowledged(job: Sending, reported: Reported, crash_point: CrashPoint) -> None:
    with Producer(candidate.plain(job.mode), job.servers) as producer:
        while (first := reported.after("delivered")) < job.records:
            end = min(first + job.group, job.records)
            reported.write("begun", first, end)
            try:
                for number in range(first, end):
                    producer.send(job.topic, b"%d" % number, partition=number % job.partitions)
                    crash_point.reached("handed", number)
                producer.flush()
            except DeliveryFailed:
                reported.write("failed", first, end)
                continue
            crash_point.reached("delivered", end)
            reported.write("delivered", first, end)
            time.sleep(job.pause_s)


def _in_transactions(job: Sending, reported: Reported, crash_point: CrashPoint) -> None:
    with TransactionalProducer(candidate.transactional(job.position), job.servers) as producer:
        first = _committed_position(job)
        while first < job.records:
            end = min(first + job.group, job.records)
            reported.write("begun", first, end)
            try:
                with producer.transaction() as transaction:
                    for number in range(first, end):
                        transaction.send(job.topic, b"%d" % number, partition=number % job.partitions)
                        crash_point.reached("handed", number)
                    transaction.send(job.position, b"%d" % end, key=b"position", partition=0)
            except TransactionAborted:
                reported.write("aborted", first, end)
                continue
            except OutcomeUnknown:
                reported.write("unknown", first, end)
                first = _committed_position(job)
                continue
            crash_point.reached("delivered", end)
            reported.write("delivered", first, end)
            first = end
            time.sleep(job.pause_s)


def _committed_position(job: Sending) -> int:
    """How far the committed transactions have come. The producer was initialised before: none of them is open any more."""
    with Reader(job.servers, job.position, "read_committed") as reader:
        return max((number for found in reader.read() for _, number in found), default=0)


if __name__ == "__main__":
    send(Sending(**json.loads(sys.argv[1])))
