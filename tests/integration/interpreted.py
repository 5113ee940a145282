"""Interpreted query plans, for tests with many small batches.

Compiling a plan pays off only for many rows; a batch of a handful spends most of its time on it. The decode tests, and every run of
the real command in tests/faults, cover compiled plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreted(session: SparkSession) -> Iterator[SparkSession]:
    """The session, without plan compilation inside the block."""
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    try:
        yield session
    finally:
        for key in SETTINGS:
            session.conf.unset(key)
