"""The first tables: outbox, database sink, dead letters and effects."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "oncelake_dead_letter",
        sa.Column("sink", sa.String(length=255), nullable=False),
        sa.Column("topic", sa.String(length=249), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.String(length=36), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("value", sa.LargeBinary(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("sink", "topic", "partition", "offset", "topic_id"),
    )
    op.create_table(
        "oncelake_effect",
        sa.Column("effect", sa.String(length=255), nullable=False),
        sa.Column("event_id", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=255), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("topic", sa.String(length=249), nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("offset", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('SENDING', 'WAITING', 'UNKNOWN', 'SUCCESS', 'FAILED', 'HELD')", name="oncelake_effect_state"),
        sa.PrimaryKeyConstraint("effect", "event_id"),
    )
    op.create_index(
        "oncelake_effect_open",
        "oncelake_effect",
        ["effect", "next_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('SENDING', 'WAITING', 'UNKNOWN')"),
    )
    op.create_table(
        "oncelake_effect_history",
        sa.Column("effect", sa.String(length=255), nullable=False),
        sa.Column("event_id", sa.String(length=255), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("worker", sa.String(length=255), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("effect", "event_id", "step"),
    )
    op.create_table(
        "oncelake_outbox",
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("aggregatetype", sa.String(length=255), nullable=False),
        sa.Column("aggregateid", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=True),
        sa.Column("tracingspancontext", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("topic", sa.String(length=249), nullable=True),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("offset", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("id <> ''", name="oncelake_outbox_id_not_empty"),
        sa.PrimaryKeyConstraint("position"),
        sa.UniqueConstraint("id", name="oncelake_outbox_id"),
    )
    op.create_index(
        "oncelake_outbox_parked",
        "oncelake_outbox",
        ["position"],
        unique=False,
        postgresql_where=sa.text("parked_at IS NOT NULL"),
    )
    op.create_index(
        "oncelake_outbox_published", "oncelake_outbox", ["published_at"], unique=False, postgresql_where=sa.text("published_at IS NOT NULL")
    )
    op.create_index(
        "oncelake_outbox_unpublished",
        "oncelake_outbox",
        ["position"],
        unique=False,
        postgresql_where=sa.text("published_at IS NULL AND parked_at IS NULL"),
    )
    op.create_table(
        "oncelake_sink_event",
        sa.Column("sink", sa.String(length=255), nullable=False),
        sa.Column("event_id", sa.String(length=255), nullable=False),
        sa.Column("topic", sa.String(length=249), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("duplicates", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("sink", "event_id"),
    )
    op.create_table(
        "oncelake_sink_offset",
        sa.Column("sink", sa.String(length=255), nullable=False),
        sa.Column("topic", sa.String(length=249), nullable=False),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("topic_id", sa.String(length=36), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("sink", "topic", "partition"),
    )
