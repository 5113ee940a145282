"""A data frame that is computed once and kept on the executors while it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame


@contextmanager
def kept(frame: DataFrame, level: StorageLevel | None = None) -> Iterator[DataFrame]:
    """Compute the frame once, and keep its rows inside this context: in memory as far as they fit, or at `level`.

    An executor that is lost takes its rows with it: a later read of the frame then fails, and so does the batch.
    """
    held = frame.localCheckpoint(True, level)
    try:
        yield held
    finally:
        # Otherwise the rows stay until Java collects their handle as garbage. This is internal API of Spark: another platform may lack it.
        with suppress(Py4JError, TypeError, AttributeError):
            plan: Any = held._jdf.queryExecution().analyzed()
            plan.rdd().unpersist(False)
