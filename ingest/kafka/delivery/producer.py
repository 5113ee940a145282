"""The producer without transactions, for the modes at_most_once and at_least_once.

with Producer(AtLeastOnce(), "127.0.0.1:9092") as producer:
    producer.send("orders", b"...", key=b"customer 7")
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final

from kafka.errors import KafkaError

from ingest.kafka.delivery.connection import as_options, end, hand_over, producer
from ingest.kafka.delivery.delivery_errors import DeliveryFailed, named
from ingest.kafka.delivery.in_flight import InFlight
from ingest.kafka.delivery.mode import AtLeastOnce, AtMostOnce
from ingest.kafka.delivery.outgoing import Headers
from ingest.kafka.kafka_options import KafkaOptions

# A little longer than delivery_timeout_ms, after which kafka-python gives a record up by itself.
FLUSH_WITHIN_S: Final = 45.0


class Producer:
    """Sends records one by one. A context manager: waits for all of them at its end, also when an exception leaves the block; that is
    raised on, with a note if some were not acknowledged.

    In at_least_once a record that is not acknowledged raises DeliveryFailed, at the latest in `flush`; in at_most_once nobody knows.
    `options` are kafka-python's, checked against the mode. Raises GuaranteeBroken, InvalidInput CLIENT_OPTIONS, InvalidEnvironment
    BROKER_UNREACHABLE.
    """

    def __init__(
        self, mode: AtMostOnce | AtLeastOnce, kafka: KafkaOptions | str, *, flush_within_s: float = FLUSH_WITHIN_S, **options: Any
    ) -> None:
        self.mode = mode
        self._within_s = flush_within_s
        self._in_flight = InFlight()
        self._made = producer(as_options(kafka), mode.producer_options(**options))

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
            elif isinstance(error, Exception):
                try:
                    self.flush()
                except DeliveryFailed as failed:
                    error.add_note(f"Besides, {failed.found}")
            elif undecided := self._in_flight.undecided():  # a signal shall end what it was meant to end
                error.add_note(f"{undecided} record(s) sent before were not acknowledged, and are not sent any more.")
        finally:
            end(self._made)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Hand a record over; waits when too much is in flight. Raises DeliveryFailed, also for records sent before.

        Returns kafka-python's future, which after `flush` tells what became of this record (None if at_most_once could not hand it over).
        """
        future = None
        try:
            future = hand_over(self._made, topic, value, key, list(headers), partition, timestamp_ms)
            self._in_flight.add(future, len(value or b"") + len(key or b""), self._within_s)
        except (KafkaError, TimeoutError) as error:
            if isinstance(self.mode, AtLeastOnce):
                raise DeliveryFailed([named(error)]) from error
        self._raise_errors()
        return future

    def flush(self) -> None:
        """Wait until every record is acknowledged, or in at_most_once sent. Raises DeliveryFailed."""
        deadline = time.monotonic() + self._within_s
        try:
            self._made.flush(timeout=self._within_s)
            self._in_flight.drain(deadline - time.monotonic())
        except (KafkaError, TimeoutError) as error:
            if isinstance(self.mode, AtLeastOnce):
                undecided = self._in_flight.undecided()
                errors, self._in_flight.errors = self._in_flight.errors, []
                raise DeliveryFailed([*map(named, errors), *[named(error)] * undecided] or [named(error)]) from error
        self._raise_errors()

    def _raise_errors(self) -> None:
        errors, self._in_flight.errors = self._in_flight.errors, []
        if errors and isinstance(self.mode, AtLeastOnce):
            raise DeliveryFailed([named(error) for error in errors]) from errors[0]
