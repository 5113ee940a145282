"""A consumer in a separate process that can be killed: `python -m ingest.lab.delivery_modes.mode_worker '{…}'`.

It copies each record to another topic. at_most_once commits offsets before that, at_least_once and idempotent after it, exactly_once
together with it. It runs until SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ingest.delivery.kafka.consumer import Consumer
from ingest.delivery.kafka.outgoing import Outgoing
from ingest.delivery.kafka.producer import Producer
from ingest.delivery.kafka.transform import Transform
from ingest.lab.delivery_modes import candidate
from ingest.lab.delivery_modes.crash_point import CrashPoint

# The shortest session that brokers allow by default. The partitions of a killed member wait this long for a new owner.
SESSION: Final[dict[str, Any]] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
COMMIT_MS: Final = 500


@dataclass(frozen=True)
class Working:
    """The job of a worker. `instance` distinguishes workers of one group; `group` is the number of records it takes at once."""

    mode: str
    servers: str
    source: str
    sink: str
    group: int
    instance: int = 0
    crash_point: dict[str, Any] | None = field(default=None)


def work(job: Working, stop: Callable[[], bool]) -> None:
    """Work until `stop` returns True. Raises the errors of Consumer.run and Transform.run."""
    crash_point = CrashPoint.of(job.crash_point)
    (_in_transactions if job.mode == "exactly_once" else _one_by_one)(job, crash_point, stop)


def _one_by_one(job: Working, crash_point: CrashPoint, stop: Callable[[], bool]) -> None:
    mode, worked = candidate.plain(job.mode), 0
    quick: dict[str, Any] = {"commit_records": job.group, "commit_ms": COMMIT_MS, **SESSION}
    with Producer(mode, job.servers, linger_ms=0) as out, Consumer(mode, [job.source], job.source, job.servers, **quick) as consumer:

        def one(record: Any) -> None:
            nonlocal worked
            out.send(job.sink, record.value, partition=record.partition)
            out.flush()  # the offset may be committed any time from now on
            worked += 1
            crash_point.reached("worked", worked)

        print("started", flush=True)
        consumer.run(one, stop=stop)


def _in_transactions(job: Working, crash_point: CrashPoint, stop: Callable[[], bool]) -> None:
    worked = 0

    def on_step(step: str) -> None:
        nonlocal worked
        worked += step == "worked"
        if step == "flushed":  # between work and commit: the log has the output, but not its offsets
            crash_point.reached("worked", worked)

    transform = Transform(
        job.source,
        lambda record: [Outgoing(job.sink, record.value, partition=record.partition)],
        [job.sink],
        candidate.transactional(f"{job.source}-{job.instance}"),
        job.source,
        job.servers,
        records=job.group,
        on_step=on_step,
        consumer_options=dict(SESSION),
    )
    with transform:
        print("started", flush=True)
        transform.run(stop=stop)


def _main() -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    work(Working(**json.loads(sys.argv[1])), stopping.is_set)


if __name__ == "__main__":
    _main()
