"""Records that were passed to kafka-python and are not acknowledged yet. A limit makes a fast caller wait for a slow broker.

kafka-python 3 has no `buffer_memory`: its buffer grows without limit, and it reports a failed record only through that record's future.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from kafka.errors import KafkaError, KafkaTimeoutError, TransactionAbortedError

# Kafka's own `buffer.memory`.
BYTES_MAX: Final = 32 * 1024 * 1024
# Approximate memory per record besides its key and value (future, accumulator entry).
_RECORD_BYTES: Final = 600


class InFlight:
    """The futures of one producer, oldest first. `errors` collects one exception per failed record."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: deque[tuple[Any, int]] = deque()
        self.errors: list[BaseException] = []

    def add(self, future: Any, size: int, timeout_s: float) -> None:
        """Add a record's future and its size in bytes; waits while more than `bytes_max` are in flight. Raises TimeoutError."""
        size += _RECORD_BYTES
        self._waiting.append((future, size))
        self._bytes += size
        if self._bytes > self._bytes_max:
            deadline = time.monotonic() + timeout_s
            while self._bytes > self._bytes_max // 2:
                self._take(deadline)

    def drain(self, timeout_s: float) -> None:
        """Wait for all records. Raises TimeoutError if some are still pending."""
        deadline = time.monotonic() + timeout_s
        while self._waiting:
            self._take(deadline)

    def undecided(self) -> int:
        """Count the records that are neither acknowledged nor given up, and add the errors of those given up to `errors`."""
        open_still = deque(each for each in self._waiting if not each[0].is_done)
        self.errors += (future.exception for future, _ in self._waiting if future.is_done and future.exception is not None)
        self._waiting, self._bytes = open_still, sum(size for _, size in open_still)
        return len(open_still)

    def met(self, kinds: tuple[type[BaseException], ...]) -> bool:
        """Whether a record has failed with one of these exceptions so far."""
        return any(isinstance(error, kinds) for error in self._met())

    def given_up(self) -> bool:
        """Whether a record failed that may still reach the broker. Unsent records that an abort discarded cannot."""
        return any(not isinstance(error, TransactionAbortedError) for error in self._met())

    def forget(self) -> None:
        """Drop all futures and errors: the transaction or its producer has ended."""
        self._waiting.clear()
        self.errors.clear()
        self._bytes = 0

    def _met(self) -> list[BaseException]:
        return [*self.errors, *(future.exception for future, _ in self._waiting if future.exception is not None)]

    def _take(self, deadline: float) -> None:
        future, size = self._waiting[0]
        if not future.is_done:
            try:
                future.get(timeout=max(deadline - time.monotonic(), 0))
            except KafkaError as error:
                if isinstance(error, KafkaTimeoutError) and not future.is_done:
                    raise TimeoutError(f"{len(self._waiting)} record(s) not acknowledged in time") from error
        self._waiting.popleft()
        self._bytes -= size
        if future.exception is not None:
            self.errors.append(future.exception)
