"""The rows of a Delta table as data frames of Spark, for checks that DuckDB cannot make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingest.quality.scope import Slice
from ingest.quality.suite import Expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkRows:
    """The rows of the table at `path`, at this version."""

    engine = "spark"
    database = None

    def __init__(self, session: SparkSession, path: str, version: int) -> None:
        self._target = session.read.format("delta").option("versionAsOf", version).load(path)

    def close(self) -> None:
        """Nothing: Spark keeps nothing of a frame."""

    def view(self, name: str, slices: Sequence[Slice] | None) -> DataFrame:
        """The rows of these slices; None: all rows."""
        from pyspark.sql import functions as F

        if slices is None:
            return self._target
        found = F.lit(False)
        for each in slices:
            found |= (F.col("_epoch") == each.epoch) & F.col("_batch").between(each.first, each.last)
        return self._target.where(found)

    def narrowed(self, view: Any, names: set[str]) -> DataFrame:
        """Only these columns (in lower case), so that Parquet reads no others."""
        frame: DataFrame = view
        return frame.select(*(f"`{name}`" for name in frame.columns if name.lower() in names))

    def config(self, expected: Expected) -> Mapping[str, Any]:
        """The expectation as the suite has it."""
        return expected.config

    def copies(self, view: Any, columns: Sequence[str], ids: Sequence[str], most: int) -> list[dict[str, Any]] | None:
        """None: GX itself finds the ids of rows whose key occurs more than once."""
        return None
