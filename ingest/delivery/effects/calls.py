"""Calls to an external API whose outcome is always known in the end: done once, refused, or held for a person.

    charge = Effects("charge", HttpApi("https://api.example.com/charges", key_valid_s=86_400), engine)
    charge.perform("order-17", b'{"amount_cents": 990}')      # State.SUCCESS, FAILED or HELD

No database can commit together with somebody else's API. So the intention is committed before the call, and the outcome after it. A
crash between the two leaves a row in SENDING. It is settled by asking the API, or by sending again under the same key.

Two limits remain for an API that ignores keys. It is called twice if its look-up has not seen a call that it makes after all. It is
called twice if a worker is paused between its last look at the clock and its call, for longer than its lease and `settle_s`.

Whether a key is still valid is judged by two clocks, the database's and the worker's: see EffectRow. A key is sent again for longer than
it is valid only if both are set back.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from sqlalchemy import Engine

from ingest.delivery.database import schema
from ingest.delivery.effects.api import Accepted, Answer, Api, Declined, Later, Unknown, check_name, idempotency_key
from ingest.delivery.effects.effect_errors import event_id_wrong, option_wrong
from ingest.delivery.effects.effect_row import EffectRow, Position, State
from ingest.delivery.effects.effect_store import Change, EffectStore
from ingest.delivery.effects.rate import Rate, Stopped
from ingest.delivery.effects.uptime import uptime
from ingest.delivery.sink.record_id import checked

_LOOK_EVERY_S: Final = 0.5
# The clocks of several machines differ by less, if they are set by NTP.
_CLOCK_MOVED_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Performed:
    """The end of a call. `again`: somebody else has brought it about, before or meanwhile; nothing was done here."""

    state: State
    reference: str | None
    detail: str | None
    again: bool


class Effects:
    """The effect `name`: its calls, by event id. For several threads and, in one database, for several processes.

    `attempts` limits the sends of one call that may have reached the API. A worker that calls holds the row for `lease_s`; this must
    be twice the API's time-out at least, because it calls only while the rest of the lease is longer than the time-out. The pauses
    between two attempts grow from `backoff_s` to `backoff_s_max`, with jitter. `rate_per_s` limits sends and look-ups of this process.
    `on_step` is called with `sending`, `called` and `recorded`.

    Raises InvalidInput EFFECT_OPTION, Refused SCHEMA_MISSING, SCHEMA_NEWER or SCHEMA_CHANGED.
    """

    def __init__(
        self,
        name: str,
        api: Api,
        engine: Engine,
        *,
        attempts: int = 8,
        lease_s: float = 60.0,
        backoff_s: float = 0.5,
        backoff_s_max: float = 60.0,
        rate_per_s: float | None = None,
        worker: str | None = None,
        on_step: Callable[[str], object] = lambda step: None,
    ) -> None:
        check_name(name)
        if attempts < 1 or not 0 < backoff_s <= backoff_s_max or (rate_per_s is not None and rate_per_s <= 0):
            raise option_wrong(f"{attempts=}, {backoff_s=}, {backoff_s_max=}, {rate_per_s=}.", "1 or more; 0 < backoff_s <= backoff_s_max.")
        if lease_s < 2 * api.timeout_s:
            raise option_wrong(f"{lease_s=}, and the API's time-out is {api.timeout_s:g} s.", "a lease of twice the time-out at least.")
        schema.check(engine)
        self.name, self.api, self.engine, self.on_step = name, api, engine, on_step
        self._attempts, self._lease_s, self._backoff_s, self._backoff_s_max = attempts, lease_s, backoff_s, backoff_s_max
        self._rate = Rate(rate_per_s)
        self._store = EffectStore(engine, name, (worker or f"{socket.gethostname()}-{os.getpid()}")[:200])

    def perform(
        self, event_id: str, request: bytes, position: Position | None = None, *, stop: Callable[[], bool] = lambda: False
    ) -> Performed:
        """Make the call for this event, unless it was made before; return when it is settled: SUCCESS, FAILED or HELD.

        An unknown outcome is looked up or sent again first, for as long as it takes. If `stop` returns True, an open state is returned;
        call again later. It is WAITING, and no row exists, if that ended the wait for `rate_per_s`. The request is stored, because it may
        have to be sent again. If the event id is known with another request, the first one counts. Raises InvalidInput EFFECT_EVENT_ID,
        InvalidEnvironment DATABASE_UNREACHABLE (the row is then settled later).
        """
        try:
            checked(event_id)
        except ValueError as error:
            raise event_id_wrong(error) from None
        row, ours = self._store.read(event_id), False
        if row is None:
            try:
                self._rate.wait(stop)
            except Stopped:
                return Performed(State.WAITING, None, "stopped before the call", again=False)
            lease_end = uptime() + self._lease_s
            row, ours = self._store.begin(event_id, request, position, self._lease_s)
            if ours:
                self.on_step("sending")
                row = self._call(row, lease_end - self.api.timeout_s)
        if row.request != request:
            _log.warning("%s: event %r came with another request than before; the first one counts", self.name, event_id)
        while not row.settled and not stop():
            if row.due_s <= 0 and (claimed := self._store.claim(self._lease_s, row)) is not None:
                ours, row = True, self._settle(claimed, stop)
            else:
                time.sleep(min(max(row.due_s, 0.01), _LOOK_EVERY_S))
                row = self._latest(row)
        return Performed(row.state, row.reference, row.detail, again=not ours)

    def reconcile(self, limit: int = 1_000, *, stop: Callable[[], bool] = lambda: False) -> Counter[State]:
        """Settle up to `limit` open calls that are due and that no worker holds; return how many are in which state now.

        Several reconcilers share the work. A call whose outcome stays unknown is due again after its pause.
        """
        counts: Counter[State] = Counter()
        while counts.total() < limit and not stop() and (row := self._store.claim(self._lease_s)) is not None:
            counts[self._settle(row, stop).state] += 1
        return counts

    def _settle(self, row: EffectRow, stop: Callable[[], bool]) -> EffectRow:
        """Settle a claimed row as far as possible now. If `stop` ends the wait for the rate, the row stays as it is, due for anybody."""
        try:
            return self._settle_claimed(row, stop)
        except Stopped:
            self._store.release(row)
            return row

    def _settle_claimed(self, row: EffectRow, stop: Callable[[], bool]) -> EffectRow:
        """Steps: 1 look up; 2 hold what cannot be known; 3 send again under the same key. Raises Stopped."""
        if row.state is State.WAITING:
            return self._send(row, stop)
        # The lease is a margin: for the request's way to the API, and for clocks that differ.
        key_until = row.asked_at + self.api.key_valid_s - row.age_s - self._lease_s
        moved = self._clock_moved(row)
        if self.api.has_look_up:
            self._rate.wait(stop)
            answer = self._look_up(row)
            if answer is not None:
                return self._record(row, answer)
        key_known = uptime() < key_until
        if self.api.has_look_up and not key_known and row.sent_s < self.api.settle_s:
            detail = f"the API has not seen the key; the request may still be under way for {self.api.settle_s:g} s{moved}"
            return self._move(row, Change(State.UNKNOWN, row.attempts, None, detail, self.api.settle_s - row.sent_s))
        if not self.api.has_look_up and not key_known:
            lacks = "the API offers neither a look-up nor idempotency keys" + (" for that long" if self.api.key_valid_s else "")
            return self._hold(row, f"{lacks}, so nobody can tell whether it has done this ({row.detail or 'the worker ended'}){moved}")
        if row.attempts >= self._attempts:
            return self._hold(row, f"sent {row.attempts} times and still unknown ({row.detail or 'the worker ended'})")
        return self._send(row, stop, key_until if key_known else math.inf)

    def _clock_moved(self, row: EffectRow) -> str:
        """What to add to a text about this row if the clocks contradict each other."""
        if abs(row.moved_s) < _CLOCK_MOVED_S:
            return ""
        moved = f"set {'back' if row.moved_s > 0 else 'ahead'} by {abs(row.moved_s):,.0f} s"
        _log.warning(
            "%s: since the call for event %r began, the database's clock was %s, or the workers' differ", self.name, row.event_id, moved
        )
        return f"; the database's clock was {moved}"

    def _send(self, row: EffectRow, stop: Callable[[], bool], until: float = math.inf) -> EffectRow:
        """Send, unless it is later than `until` when the rate and the database have let us. Raises Stopped."""
        self._rate.wait(stop)
        lease_end = uptime() + self._lease_s  # before the statement, so it ends before the one in the database
        sending = self._store.move(row, Change(State.SENDING, row.attempts + 1, next_in_s=self._lease_s))
        if sending is None:
            return self._latest(row)
        self.on_step("sending")
        return self._call(sending, min(lease_end - self.api.timeout_s, until))

    def _call(self, row: EffectRow, until: float) -> EffectRow:
        """Call the API, unless it is too late: another worker may take over during the call, or the API may have forgotten its key."""
        answer: Answer
        if uptime() > until:
            answer = Later("the worker was held up before the call, and has not made it")
        else:
            try:
                answer = self.api.send(row.request, idempotency_key(self.name, row.event_id))
            except Exception as error:
                answer = Unknown(f"{type(error).__name__}: {error}")
        self.on_step("called")
        row = self._record(row, answer)
        self.on_step("recorded")
        return row

    def _look_up(self, row: EffectRow) -> Accepted | Declined | Unknown | None:
        try:
            answer = self.api.look_up(idempotency_key(self.name, row.event_id))
        except Exception as error:
            answer = Unknown(f"{type(error).__name__}: {error}")
        return Unknown(f"the look-up failed: {answer.why}") if isinstance(answer, Unknown) else answer

    def _record(self, row: EffectRow, answer: Answer) -> EffectRow:
        pause_s = min(self._backoff_s_max, self._backoff_s * 2 ** min(row.step // 2, 30)) * random.uniform(0.5, 1.0)
        match answer:
            case Accepted(reference):
                change = Change(State.SUCCESS, row.attempts, reference)
            case Declined(reason):
                change = Change(State.FAILED, row.attempts, None, reason)
            case Later(why, after_s):
                # An earlier send is still unknown, if there was one.
                state = State.WAITING if row.attempts == 1 else State.UNKNOWN
                change = Change(state, row.attempts - 1, None, why, max(after_s, pause_s))
            case Unknown(why):
                change = Change(State.UNKNOWN, row.attempts, None, why, pause_s)
            case _:
                assert_never(answer)
        return self._move(row, change)

    def _hold(self, row: EffectRow, why: str) -> EffectRow:
        _log.warning("%s: the call for event %r is held for a person: %s", self.name, row.event_id, why)
        return self._move(row, Change(State.HELD, row.attempts, None, why))

    def _move(self, row: EffectRow, change: Change) -> EffectRow:
        """Change the state; if another worker was quicker, what it has made of the row.

        It cannot have known an answer that came late: a call that it gave up is settled by this answer.
        """
        moved = self._store.move(row, change)
        if moved is not None:
            return moved
        latest = self._latest(row)
        if change.state in (State.SUCCESS, State.FAILED) and latest.state in (State.UNKNOWN, State.HELD):
            _log.warning("%s: the answer for event %r came after its lease: %s", self.name, row.event_id, change.state)
            return self._store.move(latest, replace(change, attempts=latest.attempts)) or self._latest(row)
        return latest

    def _latest(self, row: EffectRow) -> EffectRow:
        return self._store.read(row.event_id) or row
