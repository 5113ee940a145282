"""Our tables in the application's database, as SQLAlchemy tables. A change here needs a migration in `migrations/versions`.

The outbox has the column names of Debezium's outbox event router, so that Debezium can read the same table.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

# Every key of this length fits an index page, whatever its characters are.
NAME_CHARACTERS_MAX: Final = 255
PREFIX: Final = "oncelake_"

metadata = MetaData()


def _name(column: str, *, key: bool = False) -> Column[str]:
    return Column(column, String(NAME_CHARACTERS_MAX), nullable=False, primary_key=key)


def _time(column: str, *, nullable: bool = False) -> Column[object]:
    return Column(column, DateTime(timezone=True), nullable=nullable, server_default=None if nullable else func.now())


# Events to publish, written in the application's own transactions. `position` is the order in which the rows were inserted.
outbox: Final = Table(
    f"{PREFIX}outbox",
    metadata,
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    _name("id"),
    _name("aggregatetype"),
    _name("aggregateid"),
    _name("type"),
    Column("payload", LargeBinary),
    Column("tracingspancontext", Text),
    _time("created_at"),
    _time("published_at", nullable=True),
    Column("topic", String(249)),
    Column("partition", Integer),
    Column("offset", BigInteger),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    _time("parked_at", nullable=True),
    UniqueConstraint("id", name=f"{PREFIX}outbox_id"),
    CheckConstraint("id <> ''", name=f"{PREFIX}outbox_id_not_empty"),
)
# The relay reads only what is left to publish, however many published rows are kept.
Index(
    f"{PREFIX}outbox_unpublished",
    outbox.c.position,
    postgresql_where=text("published_at IS NULL AND parked_at IS NULL"),
)
Index(f"{PREFIX}outbox_parked", outbox.c.position, postgresql_where=text("parked_at IS NOT NULL"))
Index(f"{PREFIX}outbox_published", outbox.c.published_at, postgresql_where=text("published_at IS NOT NULL"))

# The next offset of each partition that a database sink reads. `epoch` fences the partition's former owners.
sink_offset: Final = Table(
    f"{PREFIX}sink_offset",
    metadata,
    _name("sink", key=True),
    Column("topic", String(249), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("topic_id", String(36), nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", String(NAME_CHARACTERS_MAX), nullable=False),
    _time("updated_at"),
)

# The event ids that a sink has stored, with the position of the record that was stored and how often copies of it came.
sink_event: Final = Table(
    f"{PREFIX}sink_event",
    metadata,
    _name("sink", key=True),
    _name("event_id", key=True),
    Column("topic", String(249), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("duplicates", Integer, nullable=False, server_default="0"),
    _time("stored_at"),
)

# Records that a sink could not store, with their bytes. `headers` is JSON: a list of [name, base64 of the value or null].
dead_letter: Final = Table(
    f"{PREFIX}dead_letter",
    metadata,
    _name("sink", key=True),
    Column("topic", String(249), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_id", String(36), primary_key=True),
    Column("event_id", Text),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("headers", Text, nullable=False),
    Column("error", Text, nullable=False),
    _time("stored_at"),
)

# One call to an external API per effect and event id, and each state it has been in. `step` counts the states: a change names the
# step that it has seen, so of two workers that act on one row only one can change it.
effect: Final = Table(
    f"{PREFIX}effect",
    metadata,
    _name("effect", key=True),
    _name("event_id", key=True),
    Column("state", String(16), nullable=False),
    Column("step", Integer, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("worker", String(NAME_CHARACTERS_MAX), nullable=False),
    _time("lease_until"),
    _time("next_at"),
    Column("reference", Text),
    Column("detail", Text),
    Column("topic", String(249)),
    Column("partition", Integer),
    Column("offset", BigInteger),
    _time("created_at"),
    _time("begun_at"),  # the same moment by the clock of the worker that inserted the row
    _time("updated_at"),
    CheckConstraint("state IN ('SENDING', 'WAITING', 'UNKNOWN', 'SUCCESS', 'FAILED', 'HELD')", name=f"{PREFIX}effect_state"),
)
Index(f"{PREFIX}effect_open", effect.c.effect, effect.c.next_at, postgresql_where=text("state IN ('SENDING', 'WAITING', 'UNKNOWN')"))

effect_history: Final = Table(
    f"{PREFIX}effect_history",
    metadata,
    _name("effect", key=True),
    _name("event_id", key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("worker", String(NAME_CHARACTERS_MAX), nullable=False),
    Column("detail", Text),
    _time("at"),
)
