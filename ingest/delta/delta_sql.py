"""SQL over Delta tables. The same text runs on two engines: DataFusion inside deltalake (no JVM), and Spark.

The text uses only syntax that both engines interpret alike: names in backticks, `LEFT SEMI JOIN`, `EXCEPT`, windows. It refers to its
tables in braces, `SELECT * FROM {ledger}`, and contains no other brace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import is_local, local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import QueryBuilder
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

# The same as our Spark settings and Databricks' SQL: UTC, backticks around names, quotes around text, NULL as the lowest value.
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


Source: TypeAlias = "At | pa.Table"
"""A table of a query: a Delta table, or rows in memory."""


class Unreadable(InvalidEnvironment):
    """An engine cannot read a table at a version. VACUUM removed its files, or the engine lacks a feature that the table needs.

    `why` is the engine's own message.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            "TABLE_UNREADABLE",
            why,
            expected="target, quarantine and ledger with all the files of their newest version.",
            remedy="fix the cause that it names (a file removed by hand, permissions, a disk). This read changed nothing.",
        )


class DataFusion:
    """Runs SQL in this process, on tables on the local disk."""

    session: None = None

    def ask(self, sql: str, **tables: Source) -> list[dict[str, Any]]:
        """The rows of the result. Raises Unreadable."""
        return [row for batch in self.stream(sql, **tables) for row in _rows(batch)]

    def stream(self, sql: str, **tables: Source) -> Iterator[Any]:
        """The result as a stream of Arrow record batches. Raises Unreadable."""
        with unreadable(), ExitStack() as stack:
            yield from self._with(tables, stack).execute(sql.format_map({name: f"`{name}`" for name in tables}))

    def _with(self, tables: Mapping[str, Source], stack: ExitStack) -> QueryBuilder:
        from deltalake import DeltaTable, QueryBuilder, write_deltalake

        builder = QueryBuilder(DATAFUSION)
        for name, source in tables.items():
            if isinstance(source, At):
                builder.register(name, DeltaTable(str(local_path(source.path)), version=source.version))
                continue
            folder = stack.enter_context(TemporaryDirectory(prefix="ingest-"))  # it takes Delta tables only
            write_deltalake(folder, source)
            builder.register(name, DeltaTable(folder))
        return builder


class Spark:
    """Runs SQL through a session, on tables wherever the session can read."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def ask(self, sql: str, **tables: Source) -> list[dict[str, Any]]:
        """The rows of the result. Raises Unreadable."""
        with unreadable():  # through Arrow, as the other engine: PySpark's own times have no zone
            rows: list[dict[str, Any]] = self.frame(sql, **tables).toArrow().to_pylist()
            return rows

    def frame(self, sql: str, **tables: Source) -> DataFrame:
        """The result, not computed yet. The caller must compute it inside `unreadable`."""
        frames: dict[str, Any] = {}
        for name, source in tables.items():
            if isinstance(source, At):
                reader = self.session.read.format("delta")
                frames[name] = (reader if source.version is None else reader.option("versionAsOf", source.version)).load(source.path)
            else:
                frames[name] = self.session.createDataFrame(source)
        return self.session.sql(sql, **frames)


Engine = DataFusion | Spark


def arrow(engine: Engine, sql: str, **tables: Source) -> Iterator[pa.RecordBatch]:
    """The result as Arrow record batches. Spark collects it on the driver first. Raises Unreadable."""
    import pyarrow as pa

    if isinstance(engine, DataFusion):
        yield from map(pa.record_batch, engine.stream(sql, **tables))
        return
    with unreadable():
        found = engine.frame(sql, **tables).toArrow()
    yield from found.to_batches()


def schema(engine: Engine, table: At) -> pa.Schema:
    """The table's columns as Arrow types. Raises Unreadable."""
    import pyarrow as pa

    with unreadable():
        if isinstance(engine, Spark):
            return engine.frame("SELECT * FROM {rows} LIMIT 0", rows=table).toArrow().schema
        from deltalake import DeltaTable

        return pa.schema(DeltaTable(str(local_path(table.path)), version=table.version).schema())


def engine_for(location: str, session: SparkSession | None) -> Engine:
    """DataFusion for a location on the local disk, else Spark."""
    if is_local(location):
        return DataFusion()
    if session is None:
        raise ValueError(f"{location} is not local: its tables are read through a Spark session")
    return Spark(session)


def asked(location: str, session: SparkSession | None, ask: Callable[[Engine], T]) -> T:
    """Run `ask` with the engine for a location, and with Spark if deltalake cannot read a table (it lacks some Delta features).

    Without a session there is no second attempt. Raises Unreadable.
    """
    try:
        return ask(engine_for(location, session))
    except Unreadable:
        if session is None or not is_local(location):
            raise
        return ask(Spark(session))


def quoted(text: str) -> str:
    """A SQL string literal. Braces are escaped, since a brace would name a table."""
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"


def unescaped(condition: str) -> str:
    """A condition without the escapes of braces, for Spark's own expressions."""
    return condition.replace("{{", "{").replace("}}", "}")


def spark_text(text: str) -> str:
    """A string literal for a statement that only Spark runs."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def by_path(table: str) -> str:
    """The name of the Delta table at this path, for a statement that only Spark runs."""
    return "delta.`" + table.replace("`", "``") + "`"


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [batch.column(name).to_pylist() for name in names]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


@contextmanager
def unreadable() -> Iterator[None]:
    """Convert an engine's error, such as a missing file or version, into Unreadable.

    This covers every exception class: deltalake has no class for a missing file, and Spark raises one of several. Only the errors of a
    lost JVM pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":  # by name: py4j may not be installed
            raise
        raise Unreadable(str(error).strip().split("\n")[0]) from error
