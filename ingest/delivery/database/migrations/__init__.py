"""Alembic's environment for our tables. `ingest database migrate` runs it; nothing else does."""
