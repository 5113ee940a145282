"""SQL over Delta tables: one text for the two engines that answer it, DataFusion inside deltalake (no JVM) and Spark.

The text is of what both understand alike: names in backticks, `LEFT SEMI JOIN`, `EXCEPT`, windows. It names its
tables in braces, `SELECT * FROM {ledger}`, and holds no other brace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import is_local, local_path

if TYPE_CHECKING:
    from deltalake import QueryBuilder
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

# As Spark is pinned, and as Databricks reads SQL: UTC, backticks around names, quotes around text, NULL before all else.
DATAFUSION = {
    "datafusion.execution.time_zone": "+00:00",
    "datafusion.sql_parser.dialect": "databricks",
    "datafusion.sql_parser.default_null_ordering": "nulls_min",
    "datafusion.catalog.information_schema": "true",
}


@dataclass(frozen=True)
class At:
    """A Delta table at a version (None: the newest)."""

    path: str
    version: int | None = None


class Unreadable(InvalidEnvironment):
    """An engine cannot read a table at a version: VACUUM took its files, or it needs what the engine has not; `why` in its words."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            "TABLE_UNREADABLE",
            why,
            expected="target, quarantine and ledger with all the files of their newest version.",
            remedy="see to what it names (a file that was taken away by hand, rights, a disk); nothing was changed by this look.",
        )


class DataFusion:
    """Answers in this process, from tables on the machine's own disk."""

    session: None = None

    def ask(self, sql: str, **tables: At) -> list[dict[str, Any]]:
        """The rows of the answer. Raises Unreadable."""
        return [row for batch in self.stream(sql, **tables) for row in _rows(batch)]

    def stream(self, sql: str, **tables: At) -> Iterator[Any]:
        """The answer as Arrow record batches, one after the other. Raises Unreadable."""
        with unreadable():
            yield from self._with(tables).execute(sql.format_map({name: f"`{name}`" for name in tables}))

    def _with(self, tables: dict[str, At]) -> QueryBuilder:
        from deltalake import DeltaTable, QueryBuilder

        builder = QueryBuilder(DATAFUSION)
        for name, at in tables.items():
            builder.register(name, DeltaTable(str(local_path(at.path)), version=at.version))
        return builder


class Spark:
    """Answers through a session, from wherever that can read."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def ask(self, sql: str, **tables: At) -> list[dict[str, Any]]:
        """The rows of the answer. Raises Unreadable."""
        with unreadable():
            return [row.asDict(recursive=True) for row in self.frame(sql, **tables).collect()]

    def frame(self, sql: str, **tables: At) -> DataFrame:
        """The answer, not computed yet: whoever computes it does so inside of `unreadable`."""
        frames: dict[str, Any] = {}
        for name, at in tables.items():
            reader = self.session.read.format("delta")
            frames[name] = (reader if at.version is None else reader.option("versionAsOf", at.version)).load(at.path)
        return self.session.sql(sql, **frames)


Engine = DataFusion | Spark


def engine_for(location: str, session: SparkSession | None) -> Engine:
    """DataFusion for what is on the machine's own disk, else Spark."""
    if is_local(location):
        return DataFusion()
    if session is None:
        raise ValueError(f"{location} is not local: its tables are read through a Spark session")
    return Spark(session)


def asked(location: str, session: SparkSession | None, ask: Callable[[Engine], T]) -> T:
    """What `ask` answers by the engine for a place; where deltalake cannot read a table (it lacks a feature of Delta's), by the session.

    Raises Unreadable.
    """
    try:
        return ask(engine_for(location, session))
    except Unreadable:
        if session is None or not is_local(location):
            raise
        return ask(Spark(session))


def quoted(text: str) -> str:
    """Text as SQL; a brace in it would name a table."""
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [batch.column(name).to_pylist() for name in names]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


@contextmanager
def unreadable() -> Iterator[None]:
    """What the engines raise for a file or a version that is gone becomes Unreadable: it has no class of its own in deltalake, and
    from Spark it comes as one of several. A JVM that is gone stays what it is."""
    try:
        yield
    except Exception as error:
        from py4j.protocol import Py4JNetworkError

        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise
        raise Unreadable(str(error).strip().split("\n")[0]) from error
