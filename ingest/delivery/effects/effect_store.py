"""The rows of one effect in PostgreSQL. Every change of a state is one statement and one transaction, with its line in the history.

A change names the step that its maker has seen. If another worker was quicker, the step differs, and nothing is changed: this is the
fence against a worker that was paused. A statement whose connection is lost is repeated. Its outcome is then unknown, so each change
writes a name of its own into `worker`: a change that finds its own name was done before.

One statement, because a worker that is paused between two statements of a transaction would lock the row for all others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, DateTime, Engine, Text, bindparam, cast, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from ingest.delivery.database.database import is_temporary
from ingest.delivery.database.database_errors import not_connected
from ingest.delivery.database.tables import effect, effect_history
from ingest.delivery.effects.effect_row import OPEN, EffectRow, Position, State, storable
from ingest.delivery.effects.uptime import uptime

T = TypeVar("T")
# A restart or failover of the database takes less.
DATABASE_WITHIN_S: Final = 60.0
_TEXT_CHARACTERS_MAX: Final = 1_000
_NOW: Final = func.clock_timestamp()
# Read when the statement is executed, which may be later than it is made, and more than once.
_OURS: Final = bindparam("ours", callable_=lambda: datetime.now(UTC), type_=DateTime(timezone=True))


@dataclass(frozen=True, slots=True)
class Change:
    """A new state. `next_in_s`: nobody else takes the row before; in SENDING this is the lease."""

    state: State
    attempts: int
    reference: str | None = None
    detail: str | None = None
    next_in_s: float = 0.0


class EffectStore:
    """The rows of the effect `name`, for a worker. For several threads. All methods raise InvalidEnvironment DATABASE_UNREACHABLE."""

    def __init__(self, engine: Engine, name: str, worker: str) -> None:
        self._engine, self._name, self._worker = engine, name, worker

    def read(self, event_id: str) -> EffectRow | None:
        """The row of this event, or None."""
        return self._one(select(*EffectRow.columns()).where((effect.c.effect == self._name) & (effect.c.event_id == event_id)))

    def begin(self, event_id: str, request: bytes, position: Position | None, lease_s: float) -> tuple[EffectRow, bool]:
        """Insert the row in SENDING. Returns the row, and False if somebody else has inserted it."""
        worker, until = self._own_name(), _NOW + timedelta(seconds=lease_s)
        values = {"state": State.SENDING, "step": 1, "request": request, "attempts": 1, "worker": worker, "begun_at": _OURS}
        place = position._asdict() if position else {}
        statement = upsert(effect).values(effect=self._name, event_id=event_id, lease_until=until, next_at=until, **values, **place)
        row = self._changed(statement.on_conflict_do_nothing(), None) or self.read(event_id)
        assert row is not None
        return row, row.worker == worker

    def move(self, row: EffectRow, change: Change, worker: str | None = None) -> EffectRow | None:
        """Change the state; None if the row is not at this step any more."""
        worker, c = worker or self._own_name(), effect.c
        reference, detail = (None if each is None else storable(each)[:_TEXT_CHARACTERS_MAX] for each in (change.reference, change.detail))
        next_at = _NOW + timedelta(seconds=change.next_in_s)
        values = {
            "state": change.state,
            "step": row.step + 1,
            "attempts": change.attempts,
            "worker": worker,
            # The last send started before its lease ended, and before its outcome was recorded.
            "lease_until": next_at if change.state is State.SENDING else func.least(c.lease_until, _NOW),
            "next_at": next_at,
            "reference": func.coalesce(reference, c.reference),
            "detail": detail,
            "updated_at": _NOW,
        }
        at_step = (c.effect == self._name) & (c.event_id == row.event_id) & (c.step == row.step)
        moved = self._changed(update(effect).where(at_step).values(values), detail if reference is None else f"reference {reference}")
        now = moved or self.read(row.event_id)
        return now if now is not None and now.worker == worker else None

    def claim(self, lease_s: float, row: EffectRow | None = None) -> EffectRow | None:
        """Take the given row, or any, if it is open and due: nobody else takes it for `lease_s`. None if there is none.

        This is not a change of state. It keeps workers apart, so that they share the work; the step keeps them from doing it twice.
        """
        c = effect.c
        due = (c.effect == self._name) & c.state.in_(OPEN) & (c.next_at <= _NOW)
        if row is None:
            oldest = select(c.event_id).where(due).order_by(c.next_at).limit(1).with_for_update(skip_locked=True)
            due &= c.event_id == oldest.scalar_subquery()
        else:
            due &= (c.event_id == row.event_id) & (c.step == row.step)
        return self._one(update(effect).where(due).values(next_at=_NOW + timedelta(seconds=lease_s)).returning(*EffectRow.columns()))

    def release(self, row: EffectRow) -> None:
        """Give a claimed row back: it is due. If the claim has ended and another worker has the row, the step keeps them apart."""
        c = effect.c
        at_step = (c.effect == self._name) & (c.event_id == row.event_id) & (c.step == row.step)
        self._one(update(effect).where(at_step).values(next_at=_NOW).returning(*EffectRow.columns()))

    def _changed(self, change: Any, detail: str | None) -> EffectRow | None:
        """Run an INSERT or UPDATE of one row together with its line in the history. None if it concerned no row."""
        changed = change.returning(*EffectRow.columns(), effect.c.effect).cte("changed")
        line = {name: changed.c[name] for name in ("effect", "event_id", "step", "state", "worker")}
        lines = select(*line.values(), cast(literal(detail), Text))
        remembered = insert(effect_history).from_select([*line, "detail"], lines).cte("remembered")
        return self._one(select(*(column for column in changed.c if column.name != "effect")).add_cte(remembered))

    def _one(self, statement: Any) -> EffectRow | None:
        def work(connection: Connection) -> EffectRow | None:
            asked_at = uptime()
            values = connection.execute(statement).one_or_none()
            return None if values is None else EffectRow.of(values, asked_at)

        return repeated(self._engine, work)

    def _own_name(self) -> str:
        return f"{self._worker}/{secrets.token_hex(6)}"


def repeated(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run one statement and commit it. It is repeated for a minute if the database is lost, so it may run more than once.

    Raises InvalidEnvironment DATABASE_UNREACHABLE.
    """

    def once() -> T:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return work(connection)

    wait = wait_random_exponential(multiplier=0.1, max=2.0)
    retrying = Retrying(retry=retry_if_exception(is_temporary), stop=stop_after_delay(DATABASE_WITHIN_S), wait=wait, reraise=True)
    try:
        done: T = retrying(once)
        return done
    except DBAPIError as error:
        if is_temporary(error):
            raise not_connected(engine.url, error) from None
        raise
