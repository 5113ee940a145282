"""What a person sees of the calls, and what a person decides about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Engine, func, select

from ingest.delivery.database.tables import effect, effect_history
from ingest.delivery.effects.effect_errors import effect_busy, effect_done, effect_unknown
from ingest.delivery.effects.effect_row import OPEN, EffectRow, State
from ingest.delivery.effects.effect_store import Change, EffectStore

Decision: TypeAlias = Literal["success", "failed", "send-again"]
# Sending again starts with all attempts, and without asking the API first.
_STATES: Final = {"success": State.SUCCESS, "failed": State.FAILED, "send-again": State.WAITING}


@dataclass(frozen=True, slots=True)
class EffectStatus:
    """Calls of one effect by state; the age in seconds of the oldest open one (SENDING, WAITING, UNKNOWN), None if there is none."""

    effect: str
    states: dict[str, int]
    oldest_open_s: float | None


def status(engine: Engine) -> list[EffectStatus]:
    """The status of every effect."""
    c = effect.c
    age = func.extract("epoch", func.clock_timestamp() - func.min(c.created_at))
    found: dict[str, EffectStatus] = {}
    with engine.connect() as connection:
        for name, state, calls, oldest_s in connection.execute(select(c.effect, c.state, func.count(), age).group_by(c.effect, c.state)):
            one = found.get(name, EffectStatus(name, dict.fromkeys(State, 0), None))
            opened = [each for each in (one.oldest_open_s, float(oldest_s) if state in OPEN else None) if each is not None]
            found[name] = EffectStatus(name, {**one.states, state: calls}, max(opened, default=None))
    return [found[name] for name in sorted(found)]


def calls(engine: Engine, name: str | None = None, state: State | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Calls, the one that changed last first, without their requests."""
    c = effect.c
    shown = (c.effect, c.event_id, c.state, c.attempts, c.reference, c.detail, c.worker, c.topic, c.partition, c.offset)
    query = select(*shown, c.created_at, c.updated_at).order_by(c.updated_at.desc()).limit(limit)
    if name is not None:
        query = query.where(c.effect == name)
    if state is not None:
        query = query.where(c.state == state)
    with engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(query)]


def history(engine: Engine, name: str, event_id: str) -> list[dict[str, Any]]:
    """Each state that a call has been in: step, state, worker or person, detail, time. Raises InvalidInput EFFECT_UNKNOWN."""
    h = effect_history.c
    query = select(h.step, h.state, h.worker, h.detail, h.at).where((h.effect == name) & (h.event_id == event_id)).order_by(h.step)
    with engine.connect() as connection:
        found = [dict(row._mapping) for row in connection.execute(query)]
    if not found:
        raise effect_unknown(name, event_id)
    return found


def settle(engine: Engine, name: str, event_id: str, decision: Decision, why: str, who: str) -> EffectRow:
    """A person's decision about a call that has not succeeded; `who` and `why` are kept in its history.

    `send-again` is carried out by the next `Effects.reconcile`. Raises InvalidInput EFFECT_UNKNOWN, Refused EFFECT_DONE or EFFECT_BUSY.
    """

    store = EffectStore(engine, name, "")
    while True:
        row = store.read(event_id)
        if row is None:
            raise effect_unknown(name, event_id)
        if row.state is State.SUCCESS:
            raise effect_done(name, event_id, row.reference)
        if row.state is State.SENDING and row.due_s > 0:
            raise effect_busy(name, event_id, row.worker, row.due_s)
        state = _STATES[decision]
        change = Change(state, 0 if state is State.WAITING else row.attempts, None, why)
        if (moved := store.move(row, change, f"person {who}"[:255])) is not None:
            return moved
