"""A record to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record for `topic`. Unless `partition` is given, the key chooses the partition (murmur2, as in Java clients)."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default=())
    partition: int | None = None
