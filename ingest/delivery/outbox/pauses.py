"""What a relay leaves out for now: aggregates with a refused event, and aggregate types whose topic does not exist."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from ingest.delivery.outbox.unpublished import Unpublished

# A broker that has just started may not know its topics yet.
PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 10.0


@dataclass(slots=True)
class Pauses:
    """Until when each of them is left out. The pauses of a type grow from one to the next."""

    _aggregates: dict[tuple[str, str], float] = field(default_factory=dict)
    _types: dict[str, float] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is left out, so that an empty answer does not mean an empty outbox."""
        return any(self.now())

    def of_aggregate(self, row: Unpublished) -> None:
        """Leave out this row's aggregate until the row's next attempt."""
        self._aggregates[row.aggregate_type, row.aggregate_id] = time.monotonic() + min(PAUSE_S * 2**row.attempts, PAUSE_S_MAX)

    def of_type(self, aggregate_type: str) -> None:
        """Leave out all aggregates of this type."""
        tries = self._tries[aggregate_type] = self._tries.get(aggregate_type, -1) + 1
        self._types[aggregate_type] = time.monotonic() + min(PAUSE_S * 2**tries, PAUSE_S_MAX)

    def now(self) -> tuple[list[tuple[str, str]], list[str]]:
        """The aggregates and the types to leave out now."""
        now = time.monotonic()
        self._aggregates = {key: until for key, until in self._aggregates.items() if until > now}
        self._types = {key: until for key, until in self._types.items() if until > now}
        return sorted(self._aggregates), sorted(self._types)
