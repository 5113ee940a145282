"""Plans that are interpreted, not compiled, for tests of many small batches.

Compiling a plan pays off after many rows; a batch of a handful spends most of its time there. What compiled code makes of a
record is tested by those of decode, and by every run of the real command in tests/faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreted(session: SparkSession) -> Iterator[SparkSession]:
    """The session, which compiles no plan inside the block."""
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    try:
        yield session
    finally:
        for key in SETTINGS:
            session.conf.unset(key)
