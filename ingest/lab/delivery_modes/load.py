"""A candidate under load, at full speed or at a given rate. The first 20 bytes of a paced record are its due time."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from ingest.delivery.kafka.grouped import Grouped
from ingest.delivery.kafka.producer import Producer
from ingest.delivery.kafka.transactional import TransactionalProducer
from ingest.lab.delivery_modes import candidate

PARTITIONS: Final = 4
RECORD_BYTES: Final = 226
_STAMP_BYTES: Final = 20
# Without groups, the clock is checked once per this many records.
_CLOCK_EVERY: Final = 50


@dataclass(frozen=True)
class _Writer:
    """How a candidate sends a record and ends a group."""

    send: Callable[[bytes, int, bytes | None], object]
    end_group: Callable[[], object]


class Load:
    """Sends records of one candidate to one topic, in groups of `group` (None: no groups)."""

    def __init__(self, mode: str, group: int | None, servers: str, topic: str, seed: int) -> None:
        self.mode, self.group = mode, group
        self._servers, self._topic = servers, topic
        self._bodies = bodies(seed)

    def flat_out(self, seconds: float) -> float:
        """Records per second, over at least `seconds` and one whole group; the clock stops when all records are delivered."""
        with self._writer() as writer:
            writer.send(self._record(0, 0), 0, None)  # connections, metadata and the first transaction are not measured
            writer.end_group()
            began, number = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                for _ in range(self.group or _CLOCK_EVERY):
                    writer.send(self._record(number, 0), number, None)
                    number += 1
                if self.group is not None:
                    writer.end_group()
            writer.end_group()
            return number / (time.perf_counter() - began)

    def paced(self, per_s: float, records: int, key: bytes) -> None:
        """Send `records` records with this key at `per_s` per second. A late record does not delay the due times of later ones."""
        with self._writer() as writer:
            writer.send(self._record(0, 0), 0, None)
            writer.end_group()
            began_ns = time.monotonic_ns()
            for number in range(records):
                due_ns = began_ns + int(number * 1e9 / per_s)
                early_s = (due_ns - time.monotonic_ns()) / 1e9
                if early_s > 0:
                    time.sleep(early_s)
                writer.send(self._record(number, due_ns), number, key)
                if self.group is not None and (number + 1) % self.group == 0:
                    writer.end_group()
            writer.end_group()

    def _record(self, number: int, due_ns: int) -> bytes:
        return b"%020d" % due_ns + self._bodies[number % len(self._bodies)]

    @contextmanager
    def _writer(self) -> Iterator[_Writer]:
        if self.mode != "exactly_once":
            with Producer(candidate.plain(self.mode), self._servers) as producer:
                yield _Writer(self._sending(producer.send), producer.flush)
            return
        with TransactionalProducer(candidate.transactional(f"load-{uuid.uuid4().hex}"), self._servers) as transactional:
            # Without groups, Grouped's default limits apply; with groups, only the count.
            sizes: dict[str, int] = {} if self.group is None else {"records": self.group, "time_ms": 600_000}
            with Grouped(transactional, **sizes) as out:
                # The send that fills a group commits it.
                yield _Writer(self._sending(out.send), out.flush)

    def _sending(self, send: Callable[..., object]) -> Callable[[bytes, int, bytes | None], object]:
        return lambda value, number, key: send(self._topic, value, key=key, partition=number % PARTITIONS)


def due_ns(value: bytes) -> int:
    """The due time of a paced record, in ns of this machine's monotonic clock."""
    return int(value[:_STAMP_BYTES])


def bodies(seed: int) -> list[bytes]:
    """500 JSON texts; with the 20-byte stamp, each makes a record of about RECORD_BYTES bytes."""
    chance = Random(f"bodies/{seed}")
    return [
        json.dumps(
            {
                "order_id": str(uuid.UUID(int=chance.getrandbits(128))),
                "customer_id": f"customer-{chance.randrange(1_000):08}",
                "status": chance.choice(("placed", "paid", "shipped", "cancelled")),
                "amount": f"{chance.randrange(100_000) / 100:.2f}",
                "ordered_at": f"2026-01-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:00:00.{chance.randrange(1000):03}Z",
            },
            separators=(",", ":"),
        )
        .ljust(RECORD_BYTES - _STAMP_BYTES)
        .encode()
        for _ in range(500)
    ]
