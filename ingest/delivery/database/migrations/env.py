"""Alembic runs this module for each migration, with the connection that ingest/delivery/database/schema.py gives it."""

from alembic import context

from ingest.delivery.database.schema import VERSION_TABLE
from ingest.delivery.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
