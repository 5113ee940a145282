"""Which of several relays leads: the one that holds an advisory lock of the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine

from ingest.delivery.database.tables import outbox
from ingest.delivery.kafka import ExactlyOnce, TransactionalProducer
from ingest.kafka.kafka_options import KafkaOptions

# The server ends the leader's session if it is silent for this long, so a relay that is paused for good does not lead for good. During
# a transaction in Kafka it is silent, too. Inside one of the database another setting does that. PostgreSQL has the first one since 14.
SILENT_MAX_S: Final = 60
_SILENCE: Final = ("idle_session_timeout", "idle_in_transaction_session_timeout")
# One lock for each outbox table: two leaders would publish everything twice.
_LOCK: Final = f"SELECT pg_try_advisory_lock(hashtextextended('{outbox.name}' || '{outbox.name}'::regclass::oid, 0))"
# Which outbox it is, among all those that publish to one Kafka. A standby that takes over has the same numbers.
_IDENTITY: Final = f"""
SELECT concat_ws('-', system_identifier, d.oid, '{outbox.name}'::regclass::oid)
FROM pg_control_system(), pg_database AS d WHERE d.datname = current_database()
"""


class Leadership:
    """The leader's connection and producer.

    The leader reads and marks rows with the connection that holds the lock. So a relay that has lost the lock has lost the connection,
    and cannot mark. The producer's transactional id names the outbox, so the next leader of that outbox fences it.
    """

    def __init__(self, engine: Engine, kafka: KafkaOptions | str, transaction_timeout_ms: int, options: Mapping[str, Any]) -> None:
        self._engine, self._kafka, self._timeout_ms, self._options = engine, kafka, transaction_timeout_ms, options
        self._connection: Connection | None = None
        self._producer: TransactionalProducer | None = None

    @property
    def connection(self) -> Connection:
        assert self._connection is not None, "not the leader"
        return self._connection

    @property
    def producer(self) -> TransactionalProducer:
        assert self._producer is not None, "not the leader"
        return self._producer

    def take(self, on_taken: Callable[[], object]) -> bool:
        """Take the lead if nobody has it; True if this relay leads. Raises DBAPIError, InvalidEnvironment BROKER_UNREACHABLE."""
        if self._connection is None:
            connection = self._engine.connect()
            taken = connection.exec_driver_sql(_LOCK).scalar()
            connection.commit()
            if not taken:
                connection.close()
                return False
            self._connection = connection
            silent_s = max(SILENT_MAX_S, 2 * self._timeout_ms // 1000)
            for setting in _SILENCE:
                connection.exec_driver_sql(f"SET {setting} = '{silent_s}s'")
            connection.commit()
        if self._producer is None:
            identity = self._connection.exec_driver_sql(_IDENTITY).scalar_one()
            self._connection.commit()
            mode = ExactlyOnce(f"oncelake-outbox-{identity}", self._timeout_ms)
            self._producer = TransactionalProducer(mode, self._kafka, **self._options)
            on_taken()
        return True

    def give_up(self) -> None:
        """Close the producer, and the session with its lock."""
        if self._producer is not None:
            self._producer.close()
        if self._connection is not None:
            self._connection.invalidate()  # the pool would keep the session, and with it the lock
            self._connection.close()
        self._producer = self._connection = None
