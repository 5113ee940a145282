"""Our chain, one process per stage: application, relay, transform, database sink and charges. `python -m ingest.lab.payments.chain`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine

from ingest.delivery.effects import EffectConsumer, Effects, HttpApi
from ingest.delivery.kafka import ExactlyOnce, Outgoing, Transform, begin_group
from ingest.delivery.outbox.event import add
from ingest.delivery.outbox.relay import Relay
from ingest.delivery.sink import Sink, header
from ingest.lab.payments.bookkeeping import Books
from ingest.lab.payments.payment import CHECKED_TOPIC, OUTBOX_TOPIC, Stage, StageSettings, Step, run_stage

books: Final = Books.named("")

# A static member: after a kill it has its partitions back at once, not after the group's session timeout.
INSTANCE: Final = "demo-0"
# Small, so that a kill hits the middle.
BATCH: Final = 100
API_TIMEOUT_S: Final = 1.0
CHECK_GROUP: Final = "payments-check"
CHARGE_GROUP: Final = "payments-charge"


def begin(servers: str) -> None:
    """Begin the consumer groups, once, as the topics are created once. The sink's positions are in the database."""
    begin_group(CHECK_GROUP, OUTBOX_TOPIC, servers)
    begin_group(CHARGE_GROUP, CHECKED_TOPIC, servers)


def application(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Store each payment with its event in one transaction."""
    for number, made in books.to_order(engine, given):
        with engine.begin() as connection:
            connection.execute(books.payments.insert(), {"number": number, **made.json()})
            step("stored")
            add(connection, "payment", made.account, "PaymentOrdered", made.json(), event_id=made.payment_id)


def relay(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Publish the events."""
    with Relay(engine, given.servers, topic=OUTBOX_TOPIC, batch=BATCH, on_step=step) as running:
        running.run(stop=stop)


def transform(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Add the currency."""

    def checked(record: Any) -> Iterator[Outgoing]:
        value = json.dumps({**json.loads(record.value), "currency": "EUR"}).encode()
        yield Outgoing(CHECKED_TOPIC, value, record.key, [("id", dict(record.headers)["id"])])

    mode = ExactlyOnce("payments-check")
    with Transform(
        OUTBOX_TOPIC, checked, CHECKED_TOPIC, mode, CHECK_GROUP, given.servers, records=BATCH, instance=INSTANCE, on_step=step
    ) as running:
        running.run(stop=stop)


def sink(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Book the payments in the database."""

    def write(connection: Connection, records: Sequence[Any]) -> None:
        values = [json.loads(record.value) for record in records]
        connection.execute(
            books.bookings.insert(), [{"payment_id": each["payment_id"], "amount_cents": each["amount_cents"]} for each in values]
        )

    with Sink("bookings", CHECKED_TOPIC, write, engine, given.servers, batch=BATCH, instance=INSTANCE, on_step=step) as running:
        running.run(stop=stop)


def charge(given: StageSettings, engine: Engine, step: Step, stop: Callable[[], bool]) -> None:
    """Charge the accounts through the payment service."""
    api = HttpApi(given.service_url, look_up_url=f"{given.service_url}?key={{key}}", key_valid_s=86_400, timeout_s=API_TIMEOUT_S)
    effects = Effects("charge", api, engine, lease_s=2 * API_TIMEOUT_S, backoff_s=0.1, backoff_s_max=1.0, on_step=step)
    with EffectConsumer(
        effects,
        CHECKED_TOPIC,
        CHARGE_GROUP,
        given.servers,
        event_id=header("id"),
        request_of=lambda record: bytes(record.value),
        workers=4,
        records=BATCH,
        instance=INSTANCE,
    ) as running:
        running.run(stop=stop)


STAGES: Final[Mapping[str, Stage]] = {
    "application": application,
    "relay": relay,
    "transform": transform,
    "sink": sink,
    "charge": charge,
}


if __name__ == "__main__":
    run_stage(STAGES)
