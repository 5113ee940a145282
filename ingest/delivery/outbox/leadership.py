"""Which of several relays leads: the one that holds an advisory lock of the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Engine

from ingest.delivery import ExactlyOnce, TransactionalProducer
from ingest.delivery.database.tables import outbox
from ingest.kafka.kafka_options import KafkaOptions

# The server ends the leader's session if it is silent for this long, so a relay that is paused for good does not lead for good. Inside a
# transaction another setting does that. PostgreSQL has the first one since version 14.
SILENT_MAX_S: Final = 60
_SILENCE: Final = ("idle_session_timeout", "idle_in_transaction_session_timeout")
# One lock for each outbox table, whatever the relays are named: two leaders would publish everything twice.
_LOCK: Final = f"SELECT pg_try_advisory_lock(hashtextextended('{outbox.name}' || '{outbox.name}'::regclass::oid, 0))"


class Leadership:
    """The leader's connection and producer.

    The leader reads and marks rows with the connection that holds the lock. So a relay that has lost the lock has lost the connection,
    and cannot mark. The producer's transactional id contains the relay's name, so the next leader of that name fences it.
    """

    def __init__(self, engine: Engine, kafka: KafkaOptions | str, name: str, options: Mapping[str, Any]) -> None:
        self._engine, self._kafka, self._options = engine, kafka, options
        self._transactional_id = f"oncelake-outbox-{name}"
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
            for setting in _SILENCE:
                connection.exec_driver_sql(f"SET {setting} = '{SILENT_MAX_S}s'")
            connection.commit()
        if self._producer is None:
            self._producer = TransactionalProducer(ExactlyOnce(self._transactional_id), self._kafka, **self._options)
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
