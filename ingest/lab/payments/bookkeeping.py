"""The business tables of a chain of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, Text, func, select

from ingest.lab.payments.payment import Payment, StageSettings, payment


@dataclass(frozen=True)
class Books:
    """The tables of a chain: the application's payments, and what was booked. A payment that is booked twice is two rows."""

    metadata: MetaData
    payments: Table
    bookings: Table

    @classmethod
    def named(cls, prefix: str) -> Books:
        metadata = MetaData()
        payments = Table(
            f"{prefix}payments",
            metadata,
            Column("number", Integer, primary_key=True, autoincrement=False),
            Column("payment_id", Text, nullable=False),
            Column("account", Text, nullable=False),
            Column("amount_cents", BigInteger, nullable=False),
        )
        bookings = Table(f"{prefix}bookings", metadata, Column("payment_id", Text), Column("amount_cents", BigInteger))
        return cls(metadata, payments, bookings)

    def to_order(self, engine: Engine, given: StageSettings) -> Iterator[tuple[int, Payment]]:
        """The payments that the application has not stored yet, by number."""
        with engine.connect() as connection:
            last = connection.execute(select(func.coalesce(func.max(self.payments.c.number), 0))).scalar_one()
        for number in range(last + 1, given.payments + 1):
            yield number, payment(number, given.seed)
