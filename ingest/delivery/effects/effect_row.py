"""The state of one call to an external API, as its row in the database holds it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, func

from ingest.delivery.database.tables import effect


class State(StrEnum):
    """SENDING is committed before a call, all others after it.

    SUCCESS and FAILED: the API said yes or no. UNKNOWN: it may have done it or not. WAITING: it has certainly done nothing, and is
    called again later. HELD: a person has to decide (`ingest effects settle`).
    """

    SENDING = "SENDING"
    WAITING = "WAITING"
    UNKNOWN = "UNKNOWN"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    HELD = "HELD"


SETTLED: Final = frozenset({State.SUCCESS, State.FAILED, State.HELD})
OPEN: Final = frozenset(State) - SETTLED


class Position(NamedTuple):
    """Where a record is in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One row. `attempts` counts the sends that may have reached the API.

    `due_s`: seconds until anybody may take the row; in SENDING the end of the sender's lease. `sent_s`: seconds since the last send
    started, or less. `age_s`: seconds since the row was inserted, or more. All by the database's clock, and as of `asked_at`, which is an
    `uptime`, or later.

    The database's clock may be set, or a failover may lead to a server with another one. The row has the moment of its insertion by the
    clock of a worker, too. `moved_s` is by how much the database's clock was set back since then (negative: ahead), as far as the clocks of
    the workers agree. `age_s` and `sent_s` err on the side that sends less.
    """

    event_id: str
    state: State
    step: int
    request: bytes
    attempts: int
    worker: str
    reference: str | None
    detail: str | None
    due_s: float
    sent_s: float
    age_s: float
    moved_s: float
    asked_at: float

    @staticmethod
    def columns() -> list[ColumnElement[Any]]:
        """The columns and expressions to select or return."""
        c = effect.c
        spans = {"due_s": c.next_at - _NOW, "sent_s": _NOW - c.lease_until, "age_s": _NOW - c.created_at}
        seconds = [func.extract("epoch", span).label(name) for name, span in spans.items()]
        seconds.append(func.extract("epoch", c.begun_at).label("begun_at"))
        return [c.event_id, c.state, c.step, c.request, c.attempts, c.worker, c.reference, c.detail, *seconds]

    @staticmethod
    def of(values: Any, asked_at: float) -> EffectRow:
        """The row of a result with these columns, of a statement that was begun at `asked_at`."""
        event_id, state, step, request, attempts, worker, reference, detail, *seconds = values
        due_s, sent_s, age_s, begun_at = map(float, seconds)
        moved_s = time.time() - begun_at - age_s
        ages = due_s, sent_s + min(moved_s, 0), age_s + max(moved_s, 0)
        return EffectRow(event_id, State(state), step, bytes(request), attempts, worker, reference, detail, *ages, moved_s, asked_at)

    @property
    def settled(self) -> bool:
        return self.state in SETTLED


_NOW: Final = func.clock_timestamp()


def storable(text: str) -> str:
    """The text without what PostgreSQL cannot store: NUL, and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
