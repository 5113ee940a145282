"""A candidate under load: as fast as it goes, or at a given pace; then a record tells in its first 20 bytes when it was due."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from ingest.kafka.delivery.grouped import Grouped
from ingest.kafka.delivery.producer import Producer
from ingest.kafka.delivery.transactional import TransactionalProducer
from ingest.lab.delivery_modes import candidate

PARTITIONS: Final = 4
RECORD_BYTES: Final = 226
_STAMP_BYTES: Final = 20
# The clock is looked at once in so many records where nothing else sets a rhythm.
_LOOK_EVERY: Final = 50


@dataclass(frozen=True)
class _Way:
    """How a candidate takes a record and ends a group."""

    send: Callable[[bytes, int, bytes | None], object]
    end_group: Callable[[], object]


class Load:
    """Records of one candidate for one topic, in groups of `group` (None: no groups)."""

    def __init__(self, mode: str, group: int | None, servers: str, topic: str, seed: int) -> None:
        self.mode, self.group = mode, group
        self._servers, self._topic = servers, topic
        self._bodies = bodies(seed)

    def flat_out(self, seconds: float) -> float:
        """Records a second, over at least `seconds` and one whole group; the clock stops when all of them are delivered."""
        with self._way() as way:
            way.send(self._record(0, 0), 0, None)  # connections, metadata and the first transaction are no part of it
            way.end_group()
            began, number = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                for _ in range(self.group or _LOOK_EVERY):
                    way.send(self._record(number, 0), number, None)
                    number += 1
                if self.group is not None:
                    way.end_group()
            way.end_group()
            return number / (time.perf_counter() - began)

    def paced(self, per_s: float, records: int, key: bytes) -> None:
        """`records` records with this key at `per_s` a second, each due at its own time whatever became of those before."""
        with self._way() as way:
            way.send(self._record(0, 0), 0, None)
            way.end_group()
            began_ns = time.monotonic_ns()
            for number in range(records):
                due_ns = began_ns + int(number * 1e9 / per_s)
                early_s = (due_ns - time.monotonic_ns()) / 1e9
                if early_s > 0:
                    time.sleep(early_s)
                way.send(self._record(number, due_ns), number, key)
                if self.group is not None and (number + 1) % self.group == 0:
                    way.end_group()
            way.end_group()

    def _record(self, number: int, due_ns: int) -> bytes:
        return b"%020d" % due_ns + self._bodies[number % len(self._bodies)]

    @contextmanager
    def _way(self) -> Iterator[_Way]:
        if self.mode != "exactly_once":
            with Producer(candidate.plain(self.mode), self._servers) as producer:
                yield _Way(self._sending(producer.send), producer.flush)
            return
        with TransactionalProducer(candidate.transactional(f"load-{uuid.uuid4().hex}"), self._servers) as transactional:
            # Without groups as it comes; else by count alone.
            sizes: dict[str, int] = {} if self.group is None else {"records": self.group, "time_ms": 600_000}
            with Grouped(transactional, **sizes) as out:
                # A full group is committed by the send that fills it.
                yield _Way(self._sending(out.send), out.flush)

    def _sending(self, send: Callable[..., object]) -> Callable[[bytes, int, bytes | None], object]:
        return lambda value, number, key: send(self._topic, value, key=key, partition=number % PARTITIONS)


def due_ns(value: bytes) -> int:
    """When a record of a paced load was due, on this machine's monotonic clock."""
    return int(value[:_STAMP_BYTES])


def bodies(seed: int) -> list[bytes]:
    """Some hundred JSON texts, which with the stamp make records of about RECORD_BYTES bytes."""
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
