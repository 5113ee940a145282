"""Sends what a table has not sent to a destination yet, and keeps how far it went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from openlineage.client.event_v2 import RunEvent

from ingest.observe.lineage.destination import Destination
from ingest.observe.lineage.lineage_event import EventMaker
from ingest.observe.lineage.sent import Cursor, Sent, batches_after, validations_after

# The cursor is written after so many events, and at the end.
KEPT_EVERY = 500


@dataclass
class Delivered:
    """What one call sent of one table. `newest_batch` is the newest one that the destination has, as `epoch/number`."""

    table: str
    to: str
    batches: int = 0
    validation_runs: int = 0
    events: int = 0
    newest_batch: str | None = None


def send_table(maker: EventMaker, destination: Destination, since: datetime | None, *, by_epoch: bool) -> Delivered:
    """Send in order, and keep the position after each part, also if an event is not taken: at least once, never a gap.

    `since` sends everything from that time on, too. Raises InvalidEnvironment LINEAGE_NOT_SENT or LINEAGE_REFUSED, and Unreadable.
    """
    cursor = Cursor(maker.places, destination.name)
    sent = Sent() if destination.is_new else cursor.read()
    delivered = Delivered(maker.contract.name, destination.name)
    try:
        for event, batches, after in _events(maker, sent, since, by_epoch=by_epoch):
            destination.send(event)
            sent = after
            delivered.batches += batches
            delivered.validation_runs += not batches
            delivered.events += 1
            if delivered.events % KEPT_EVERY == 0:
                _keep(destination, cursor, sent)
    finally:
        if delivered.events:
            _keep(destination, cursor, sent)
    delivered.newest_batch = f"{sent.epoch}/{sent.batch}" if sent.epoch else None
    return delivered


def _events(maker: EventMaker, sent: Sent, since: datetime | None, *, by_epoch: bool) -> Iterator[tuple[RunEvent, int, Sent]]:
    """Each event with its number of batches (0 for a validation run) and the state after it."""
    begun = sent
    for rows in batches_after(maker.places, begun, since, by_epoch=by_epoch):
        sent = sent.with_batch(rows[-1])
        yield maker.of_batches(rows, whole_epoch=by_epoch), len({line.batch_id for line in rows}), sent
    for run in validations_after(maker.places, begun, since):
        sent = sent.with_validation(run)
        yield maker.of_validation(run), 0, sent


def _keep(destination: Destination, cursor: Cursor, sent: Sent) -> None:
    destination.keep()  # before the cursor: what it says must be true after a crash
    cursor.write(sent)
