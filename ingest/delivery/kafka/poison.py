"""Dead-letter handling for records on which the work fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ingest.delivery.kafka.outgoing import Outgoing
from ingest.runtime.errors import InvalidInput

_DETAIL_BYTES_MAX: Final = 1_000


@dataclass(frozen=True)
class DeadLetter:
    """After `attempts` failures, send the record unchanged to `topic`, with headers for its position and the error, and continue."""

    topic: str
    attempts: int = 1

    def __post_init__(self) -> None:
        if not self.topic or self.attempts < 1:
            found, remedy = f"topic {self.topic!r}, attempts {self.attempts}.", "correct them."
            raise InvalidInput("DEAD_LETTER", found, expected="a topic and at least one attempt.", remedy=remedy)

    def letter(self, record: Any, error: BaseException) -> Outgoing:
        """The dead-letter record: key, value and headers unchanged, with added `dead.*` headers.

        kafka-python cannot send a record with neither key nor value, or a header without a value: such a null value becomes empty bytes.
        """
        value = b"" if record.key is None and record.value is None else record.value
        headers = [(name, content if content is not None else b"") for name, content in record.headers]
        added = {
            "dead.topic": record.topic,
            "dead.partition": str(record.partition),
            "dead.offset": str(record.offset),
            "dead.error": type(error).__name__,
            "dead.detail": str(error),
        }
        more = [(name, text.encode("utf-8", "replace")[:_DETAIL_BYTES_MAX]) for name, text in added.items()]
        return Outgoing(self.topic, value, record.key, [*headers, *more])
