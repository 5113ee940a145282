"""The first tables: outbox, database sink, dead letters and effects, as this package has them.

With a second version this one has to name its tables itself: those in `tables.py` are always the newest ones.
"""

from alembic import op

from ingest.delivery.database.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    metadata.create_all(op.get_bind(), checkfirst=False)
