"""The producer without transactions, for the modes at_most_once and at_least_once.

with Producer(AtLeastOnce(), "127.0.0.1:9092") as producer:
    producer.send("orders", b"...", key=b"customer 7")
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from kafka.errors import KafkaError

from ingest.delivery.kafka.delivery_errors import DeliveryFailed, named
from ingest.delivery.kafka.in_flight import InFlight
from ingest.delivery.kafka.mode import AtLeastOnce, AtMostOnce
from ingest.delivery.kafka.outgoing import Headers
from ingest.kafka.connection import as_options, end, hand_over, producer
from ingest.kafka.kafka_options import KafkaOptions

# A little longer than delivery_timeout_ms, after which kafka-python itself gives up a record.
FLUSH_WITHIN_S: Final = 45.0


class Producer(AbstractContextManager["Producer"]):
    """Sends records one by one. A context manager that waits for all of them at the end of the block.

    If an exception leaves the block, it waits too and re-raises the exception, with a note if records were not acknowledged. A signal
    does not wait. In at_least_once an unacknowledged record raises DeliveryFailed, at the latest in `flush`; in at_most_once lost records
    go unnoticed. `options` are kafka-python's and are checked against the mode. Raises GuaranteeBroken, InvalidInput CLIENT_OPTIONS,
    InvalidEnvironment BROKER_UNREACHABLE.
    """

    def __init__(
        self, mode: AtMostOnce | AtLeastOnce, kafka: KafkaOptions | str, *, flush_within_s: float = FLUSH_WITHIN_S, **options: Any
    ) -> None:
        self.mode = mode
        self._within_s = flush_within_s
        self._in_flight = InFlight()
        self._made = producer(as_options(kafka), mode.producer_options(**options))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
            elif isinstance(error, Exception):
                try:
                    self.flush()
                except DeliveryFailed as failed:
                    error.add_note(f"In addition, {failed.found}")
            elif undecided := self._in_flight.undecided():  # no flush, so that a signal ends the process
                error.add_note(f"{undecided} record(s) sent before were not acknowledged and will not be sent any more.")
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
        """Send a record; blocks while too many bytes are in flight. Raises DeliveryFailed, also for records sent earlier.

        Returns kafka-python's future, which has the record's outcome after `flush`. In at_most_once it returns None if kafka-python did not
        accept the record.
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
        """Wait until every record is acknowledged (in at_most_once: sent). Raises DeliveryFailed."""
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
