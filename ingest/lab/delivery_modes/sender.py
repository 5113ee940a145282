"""A producer in a separate process that can be killed: `python -m ingest.lab.delivery_modes.sender '{…}'`.

It sends the records 0, 1, 2, … to a topic in groups. After a restart it continues from its last position:

- at_most_once logs a group as begun, then sends it;
- at_least_once and idempotent send a group, wait until it is acknowledged, then log it;
- exactly_once writes its position to a separate topic, in the group's transaction, and reads it from there.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.delivery.kafka.delivery_errors import DeliveryFailed, OutcomeUnknown, TransactionAborted
from ingest.delivery.kafka.producer import Producer
from ingest.delivery.kafka.transactional import TransactionalProducer
from ingest.lab.delivery_modes import candidate
from ingest.lab.delivery_modes.crash_point import CrashPoint
from ingest.lab.delivery_modes.mode_verdict import Reader
from ingest.lab.delivery_modes.reported import Reported


@dataclass(frozen=True)
class Sending:
    """The job of a sender. It pauses `pause_s` between two groups, so that a fault hits it while it works."""

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
    """Send the remaining records. Raises the errors of the mode's producer."""
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
    """The position of the last committed transaction. No transaction is open, because the producer was initialised before."""
    with Reader(job.servers, job.position, "read_committed") as reader:
        return max((number for found in reader.read() for _, number in found), default=0)


if __name__ == "__main__":
    send(Sending(**json.loads(sys.argv[1])))
