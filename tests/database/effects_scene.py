"""A payment service, the effect `charge` on it, and what the service and the database know afterwards."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from sqlalchemy import Engine, select

from ingest.delivery.database.tables import dead_letter, effect, effect_history
from ingest.delivery.effects import Accepted, Api, Declined, Effects, HttpApi
from ingest.delivery.effects.api import idempotency_key
from ingest.lab.payment_service import PaymentService

# What an API offers: HttpApi's arguments besides the look-up, and whether it has one.
OFFERS: Final[dict[str, tuple[float, bool]]] = {
    "look-up and keys": (float("inf"), True),
    "look-up": (0, True),
    "keys": (float("inf"), False),
    "neither": (0, False),
}
TIMEOUT_S: Final = 0.6


def found_in(body: bytes) -> Accepted | Declined:
    found = json.loads(body)
    return Declined("card declined") if found["status"] == "declined" else Accepted(found["id"])


def http_api(url: str, offers: str = "look-up", **more: Any) -> HttpApi:
    key_valid_s, look_up = OFFERS[offers]
    look_up_url = f"{url}?key={{key}}" if look_up else None
    given: dict[str, Any] = {"settle_s": 0.2, "timeout_s": TIMEOUT_S, **more}
    return HttpApi(url, look_up_url=look_up_url, key_valid_s=key_valid_s, found_in=found_in, **given)


def request(event_id: str, amount_cents: int = 100) -> bytes:
    return json.dumps({"amount_cents": amount_cents, "event": event_id}).encode()


def emptied(engine: Engine) -> Engine:
    """The engine of a database that tests share, without their rows."""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {effect.name}, {effect_history.name}, {dead_letter.name}")
    return engine


class Payments:
    """The service and the database of a test."""

    def __init__(self, engine: Engine, service: PaymentService) -> None:
        self.engine, self.service = engine, service

    def offers(self, offers: str, **more: Any) -> Effects:
        """The effect on an API that offers this; the service honours keys accordingly."""
        self.service.honours_key = OFFERS[offers][0] > 0
        api = {name: more.pop(name) for name in ("settle_s", "timeout_s") if name in more}
        return self.effects(http_api(self.service.url, offers, **api), **more)

    def effects(self, api: Api, **more: Any) -> Effects:
        given: dict[str, Any] = {"lease_s": 3.0, "backoff_s": 0.05, "backoff_s_max": 0.4, **more}
        return Effects("charge", api, self.engine, **given)

    def charges(self) -> Counter[str]:
        """Number of charges by event."""
        return Counter(each["event"] for each in self.service.charges)

    def states(self) -> dict[str, str]:
        with self.engine.connect() as connection:
            return {row.event_id: row.state for row in connection.execute(select(effect.c.event_id, effect.c.state))}

    def row(self, event_id: str) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(select(effect).where(effect.c.event_id == event_id)).one()

    def history(self, event_id: str) -> list[str]:
        """The call's states in order; their steps are 1, 2, 3, …"""
        h = effect_history.c
        with self.engine.connect() as connection:
            found = connection.execute(select(h.step, h.state).where(h.event_id == event_id).order_by(h.step)).all()
        assert [row.step for row in found] == list(range(1, len(found) + 1))
        return [row.state for row in found]

    def left_open(self, effects: Effects, event_ids: list[str]) -> None:
        """Make one attempt for each event and stop, whatever its outcome is."""
        for event_id in event_ids:
            effects.perform(event_id, request(event_id), stop=lambda: True)

    def as_if(self, changes: str) -> None:
        """Change the columns of all calls."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {effect.name} SET {changes}")

    def charged_once(self, event_ids: list[str]) -> None:
        """Every event is charged once, under its own key, and recorded so."""
        assert self.charges() == Counter(event_ids)
        assert {each["key"] for each in self.service.charges} == {idempotency_key("charge", event_id) for event_id in event_ids}
        assert self.states() == dict.fromkeys(event_ids, "SUCCESS")
        references = {each["event"]: each["id"] for each in self.service.charges}
        for event_id in event_ids:
            row, history = self.row(event_id), self.history(event_id)
            assert (row.reference, history[0], history[-1]) == (references[event_id], "SENDING", "SUCCESS")
