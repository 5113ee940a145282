"""The two engines: DataFusion inside deltalake (no JVM), and Spark. Both get the same table names and the same SQL text."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from ingest.delta.answer import Answer
from ingest.delta.delta_sql import DATAFUSION, by_path, spark_text
from ingest.runtime.errors import IngestError, InvalidInput
from ingest.sql.catalog import Catalog, LakeTable
from ingest.sql.read_only import refuse_writes
from ingest.sql.spark_plan import refuse_all_but_reads

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

# Runs one statement and returns at most this many rows (None: all).
Ask = Callable[[str, int | None], Answer]


def open_table(table: LakeTable) -> DeltaTable:
    """The Delta table at its version, read by deltalake. Raises InvalidInput SQL_FAILED if it cannot be read."""
    from deltalake import DeltaTable

    try:
        return DeltaTable(table.path, version=table.version)
    except Exception as error:
        version = "" if table.version is None else f" at version {table.version}"
        raise _failed(f"{table.full}{version} cannot be read: {_sentence(str(error))}") from error


def without_spark(catalog: Catalog) -> Ask:
    """Ask DataFusion. The function returned raises InvalidInput SQL_NOT_A_QUERY, SQL_TABLE_UNKNOWN, SQL_FAILED."""

    def ask(sql: str, limit: int | None) -> Answer:
        refuse_writes(sql)
        from deltalake import QueryBuilder

        builder = QueryBuilder(DATAFUSION)
        # Opening a table reads its whole log. So only tables that the text names are opened, or all if it lists the tables.
        words = sql.lower()
        every = "show" in words or "information_schema" in words
        opened = {table: open_table(table) for table in catalog.tables if every or table.short in words}
        for pipeline in sorted({table.pipeline for table in opened}):
            builder.execute(f"CREATE SCHEMA IF NOT EXISTS `{pipeline}`")
        for name, table in catalog.names.items():
            if table in opened:
                builder.register(name, opened[table])

        def named(error: Exception) -> InvalidInput:
            return _named(error, catalog, r"table '([^']+)' not found")

        try:
            reader = pa.RecordBatchReader.from_stream(builder.execute(sql))
        except Exception as error:
            raise named(error) from error
        return Answer(reader, named)

    return ask


@contextmanager
def with_spark(session: SparkSession, catalog: Catalog) -> Iterator[Ask]:
    """Ask Spark. Its session has the tables as views while this context is open. The errors are the same as without Spark."""
    # PySpark logs every refused statement as a page of JSON; the error that we raise says it in one sentence.
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    short = {name: table for name, table in catalog.names.items() if "." not in name}
    full = {name: table for name, table in catalog.names.items() if "." in name}
    # In a metastore, a view of a database would outlive the session; there only the short names exist.
    in_memory = session.conf.get("spark.sql.catalogImplementation") == "in-memory"
    folder = tempfile.mkdtemp(prefix="ingest-sql-")
    made: list[str] = []

    def named(error: Exception) -> InvalidInput:
        return _named(error, catalog, r"table or view `?([\w.`]+?)`? cannot be found")

    def ask(sql: str, limit: int | None) -> Answer:
        try:
            refuse_all_but_reads(session, sql, catalog, (*short, *full) if in_memory else tuple(short))
            frame = session.sql(sql)
            table = (frame if limit is None else frame.limit(limit)).toArrow()
        except Exception as error:
            raise named(error) from error
        return Answer(table.to_reader(), named)

    try:
        for name, table in short.items():
            session.sql(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {_select(table)}")
        if in_memory:
            there = {row[0] for row in session.sql("SHOW DATABASES").collect()}
            made = sorted({table.pipeline for table in full.values()} - there)
            for pipeline in made:
                session.sql(f"CREATE DATABASE `{pipeline}` LOCATION {spark_text(f'{folder}/{pipeline}')}")
            for table in full.values():
                session.sql(f"CREATE OR REPLACE VIEW `{table.pipeline}`.`{table.short}` AS {_select(table)}")
        yield ask
    finally:
        for name in short:
            session.catalog.dropTempView(name)
        if in_memory:
            for table in full.values():
                session.sql(f"DROP VIEW IF EXISTS `{table.pipeline}`.`{table.short}`")
        for pipeline in made:
            session.sql(f"DROP DATABASE IF EXISTS `{pipeline}` CASCADE")
        shutil.rmtree(folder, ignore_errors=True)


def _select(table: LakeTable) -> str:
    version = "" if table.version is None else f" VERSION AS OF {table.version}"
    return f"SELECT * FROM {by_path(table.path)}{version}"


def _named(error: Exception, catalog: Catalog, unknown_table: str) -> InvalidInput:
    """The error of an engine as one of our errors, in one sentence."""
    if isinstance(error, InvalidInput):
        return error
    if isinstance(error, IngestError):
        raise error
    text = str(error)
    if missing := re.search(unknown_table, text):
        name = missing.group(1).replace("`", "").removeprefix("datafusion.").removeprefix("public.")
        return catalog.unknown(name)
    return _failed(_sentence(text))


def _failed(found: str) -> InvalidInput:
    return InvalidInput(
        "SQL_FAILED",
        found,
        expected="SQL that the engine can run; docs/how-to/sql-questions.md says how the two differ.",
        remedy="correct the statement; `ingest sql --tables` shows tables and columns.",
    )


def _sentence(text: str) -> str:
    """The first sentence of an engine's message, without its own prefixes, plans and advice."""
    lines: Sequence[str] = [line.strip() for line in text.strip().splitlines() if line.strip()] or ["the engine gave no reason"]
    words = lines[0]
    if words.startswith("Optimizer rule") or words in ("type_coercion",):
        words = next((line for line in lines[1:] if line != "caused by"), words)
    elif lines[1:2] and lines[1].startswith("Valid fields"):
        words = f"{words} {lines[1]}"
    words = re.sub(
        r"^(?:(?:Error during planning|External error|Arrow error|SQL error|Schema error|Execution error|Internal error): )+", "", words
    )
    words = re.sub(r'^(?:ParserError|TokenizerError)\("(.*)"\)$', r"\1", words)
    words = re.sub(r"^(?:\[[A-Z_.0-9]+\] )|(?: ?SQLSTATE: \w{5})|(?:;$)", "", words).strip()
    return words.removesuffix(".") if words.endswith("?.") else words if words.endswith((".", "?")) else f"{words}."
