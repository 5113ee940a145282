"""What each stage of a chain holds, counted where it is: in the database, in Kafka, at the payment service, in the lake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Table, select

from ingest.kafka.committed_records import committed_records
from ingest.kafka.kafka_options import KafkaOptions


@dataclass(frozen=True)
class Held:
    """What a stage holds, against what it should: payments, those that are missing or there more than once, and the sum in cents.

    In Kafka, copies are expected: the readers behind it recognise them. There `cents` counts each payment once.
    """

    stage: str
    payments: int
    lost: int
    doubled: int
    copies: int
    cents: int
    expected_cents: int

    @property
    def exact(self) -> bool:
        return self.lost == self.doubled == 0 and self.cents == self.expected_cents


def held(stage: str, found: Iterable[tuple[str, int]], expected: Mapping[str, int], *, copies_expected: bool = False) -> Held:
    """Compare the (payment id, cents) that a stage holds with the amounts that it should hold."""
    rows = list(found)
    count = Counter(payment_id for payment_id, _ in rows)
    copies = len(rows) - len(count)
    once = dict(rows)
    cents = sum(once.values()) if copies_expected else sum(cents for _, cents in rows)
    doubled = 0 if copies_expected else copies
    lost = len(expected.keys() - count.keys())
    return Held(stage, len(count), lost, doubled, copies, cents, sum(expected.values()))


def in_table(engine: Engine, table: Table) -> list[tuple[str, int]]:
    """The payments in a database table."""
    with engine.connect() as connection:
        return [(row.payment_id, row.amount_cents) for row in connection.execute(select(table.c.payment_id, table.c.amount_cents))]


def in_topic(servers: str, topic: str) -> list[tuple[str, int]]:
    """The committed records of a topic."""
    return [_of(json.loads(record.value)) for record in committed_records(KafkaOptions(servers), topic)]


def charged(charges: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """The charges that the payment service has made."""
    return [_of(each) for each in charges]


def in_lake(target: str) -> list[tuple[str, int]]:
    """The rows of the Delta table."""
    from ingest.delta.delta_sql import At, DataFusion

    rows = DataFusion().ask("SELECT `payment_id`, `amount_cents` FROM {target}", target=At(target))
    return [_of(row) for row in rows]


def _of(made: Mapping[str, Any]) -> tuple[str, int]:
    return str(made["payment_id"]), int(made["amount_cents"])
