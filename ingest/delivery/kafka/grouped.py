"""Many records in one transaction, grouped by count and by time.

A transaction costs the same few requests for one record as for a thousand. It must not stay open until the next record arrives, because
read_committed consumers wait for its end.

    with TransactionalProducer(ExactlyOnce("billing-0"), servers) as producer, Grouped(producer) as out:
        for event in events:
            out.send("orders", event)
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from ingest.delivery.kafka.delivery_errors import GroupMovedOn, TransactionAborted
from ingest.delivery.kafka.in_flight import BYTES_MAX
from ingest.delivery.kafka.outgoing import Headers, Outgoing
from ingest.delivery.kafka.transactional import TransactionalProducer
from ingest.runtime.errors import InvalidInput

RECORDS: Final = 1_000
TIME_MS: Final = 100
ATTEMPTS: Final = 3
# A group is kept in memory until it is committed, so that it can be sent again. A larger one would not fit in flight at once anyway.
_GROUP_BYTES_MAX: Final = BYTES_MAX


class Grouped:
    """Commits after `records` records, 32 MB, or `time_ms` after the first record, whichever is first. A context manager.

    An aborted group is sent again, `attempts` times in all, because that cannot double records. Any other error is raised by the next
    `send` or at the end of the block. Its records are then in `lost`, with the record that this `send` was given. After OutcomeUnknown the
    caller must decide, because sending again could double them. If an exception leaves the block, the uncommitted records are in `lost`
    too. `send` waits while a group is being committed, so a fast caller cannot outrun the broker.
    """

    def __init__(
        self, producer: TransactionalProducer, *, records: int = RECORDS, time_ms: int = TIME_MS, attempts: int = ATTEMPTS
    ) -> None:
        if records < 1 or time_ms < 1 or attempts < 1:
            raise InvalidInput(
                "GROUP_SIZE", f"{records=}, {time_ms=}, {attempts=}.", expected="at least 1 of each.", remedy="correct them."
            )
        self._producer, self._records, self._time_s, self._attempts = producer, records, time_ms / 1000, attempts
        self._group: list[Outgoing] = []
        self._bytes = 0
        self._due = float("inf")
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._clock = threading.Thread(target=self._watch, name="kafka-grouped", daemon=True)
        self.committed = 0
        self.transactions = 0
        self.lost: tuple[Outgoing, ...] = ()

    def __enter__(self) -> Grouped:
        self._clock.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with self._changed:
                if kind is None and self._error is None:
                    self._commit()
                elif self._group:
                    self.lost, self._group = tuple(self._group), []
        finally:  # also if a signal interrupts the wait for the last commit
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            self._clock.join()
        if kind is None:
            self._raise_error()

    def send(
        self, topic: str, value: bytes | None, *, key: bytes | None = None, headers: Headers = (), partition: int | None = None
    ) -> None:
        """Add a record to the current group. Raises the error of an earlier group's commit; TypeError if value or key is not bytes."""
        for what, given in (("value", value), ("key", key)):
            if not isinstance(given, bytes | bytearray | memoryview | None):  # at the commit it would fail the whole group
                raise TypeError(f"the {what} is {type(given).__name__}; expected bytes, or None. Encode it first.")
        with self._changed:
            if self._ended:
                raise InvalidInput(
                    "GROUP_ENDED", "a record for a group that has ended.", expected="an open one.", remedy="create a new Grouped."
                )
            if self._error is not None:
                self.lost = (*self.lost, Outgoing(topic, value, key, headers, partition))
            self._raise_error()
            self._group.append(Outgoing(topic, value, key, headers, partition))
            self._bytes += len(value or b"") + len(key or b"")
            if len(self._group) >= self._records or self._bytes >= _GROUP_BYTES_MAX:
                self._commit()
                self._raise_error()
            elif len(self._group) == 1:
                self._due = time.monotonic() + self._time_s
                self._changed.notify_all()

    def flush(self) -> None:
        """Commit the current group now."""
        with self._changed:
            self._commit()
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _watch(self) -> None:
        with self._changed:
            while not self._ended:
                left_s = self._due - time.monotonic()
                if left_s > 0:
                    self._changed.wait(None if left_s == float("inf") else left_s)
                else:
                    self._commit()

    def _commit(self) -> None:
        group, self._group, self._bytes, self._due = self._group, [], 0, float("inf")
        for left in reversed(range(self._attempts if group else 0)):
            try:
                with self._producer.transaction() as transaction:
                    for one in group:
                        transaction.send(one.topic, one.value, key=one.key, headers=one.headers, partition=one.partition)
                break
            except TransactionAborted as error:
                if left == 0 or isinstance(error, GroupMovedOn):
                    self._error, self.lost = error, tuple(group)
                    return
            except Exception as error:
                self._error, self.lost = error, tuple(group)
                return
            except BaseException:
                self.lost = tuple(group)
                raise
        self.committed += len(group)
        self.transactions += bool(group)
