"""Find the rows that an erasure's condition means. Conditions are Spark's SQL, also where this process evaluates them.

The compiler of row rules translates a condition exactly, or not at all. What it does not translate is left to Spark, so the same command
never means other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ingest.contract.sql_type import Atomic, SqlType, TypeProblem, text_of
from ingest.contract.sql_type_parser import parse_type
from ingest.decode.arrow_rule import compile_rule
from ingest.decode.rule_expression import ArrowRule, holds
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.delta.direct_fit import refuse_rewrite, unfit
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.partition import read
from ingest.delta.stored_rows import QUARANTINE, Columns
from ingest.delta.table_rows import schema_of
from ingest.delta.table_writer import TableWriter
from ingest.repair.retention import POSITIONS
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import local_path

# A quarantined record's value as text, a column for conditions.
TEXT = "text"


def positions(writer: TableWriter, path: str, columns: Columns, where: str, option: str) -> pa.Table:
    """The rows (POSITIONS) of the table at `path` that meet a condition.

    Raises InvalidInput CONDITION_INVALID, and DIRECT_UNFIT for a condition or a table that needs Spark.
    """
    if isinstance(writer, DirectWriter):
        return _positions_here(writer.looked_at(path), columns, where)
    return _positions_by_spark(writer, path, columns, where, option)


def _positions_by_spark(writer: TableWriter, path: str, columns: Columns, where: str, option: str) -> pa.Table:
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    assert writer.session is not None, "Spark's writer has a session"
    frame = writer.session.read.format("delta").load(path)
    if columns is QUARANTINE:
        frame = frame.withColumn(TEXT, F.col("value").cast("string"))
    try:
        named = zip(POSITIONS.names, columns.position, strict=True)
        found = frame.where(F.expr(where)).select(*(F.col(f"`{name}`").alias(to) for to, name in named))
        found.schema  # noqa: B018 (analyses the condition)
    except (AnalysisException, ParseException) as error:
        raise InvalidInput(
            "CONDITION_INVALID",
            f"{option} {where!r}: {str(error).strip().splitlines()[0]}",
            expected="an SQL condition over the table's columns, such as customer_id = 4711.",
            remedy=f"correct {option}; `ingest sql` shows the columns.",
        ) from error
    return found.toArrow().cast(POSITIONS)


def _positions_here(table: LiveTable, columns: Columns, where: str) -> pa.Table:
    assert table.state is not None, "the caller has looked for the table"
    refuse_rewrite(table.state, table.path)  # before anything is counted
    rule = _compiled(table, columns, where)
    schema = schema_of(table)
    used = {"value" if field.name == TEXT else field.name for field in rule.columns}
    wanted = pa.schema([schema.field(name).with_nullable(True) for name in dict.fromkeys((*used, *columns.position))])
    found = []
    for file in table.live.values():
        for batch in read(str(local_path(table.path)), file, wanted).to_batches():
            hits = batch.filter(holds(rule, _with_text(batch) if columns is QUARANTINE and "value" in used else batch))
            values = [hits.column(name).cast(kind) for name, kind in zip(columns.position, POSITIONS.types, strict=True)]
            found.append(pa.RecordBatch.from_arrays(values, schema=POSITIONS))
    return pa.Table.from_batches(found, POSITIONS)


def _compiled(table: LiveTable, columns: Columns, where: str) -> ArrowRule:
    try:
        return compile_rule(where, dict(_kinds(table, columns)))
    except (Untranslatable, RuleRaises) as why:
        raise unfit(table.path, f"is searched with a condition that has {why}") from why


def _kinds(table: LiveTable, columns: Columns) -> Iterator[tuple[str, SqlType]]:
    """The types of the columns that a condition may name. A type that no contract has is left to Spark."""
    assert table.state is not None, "the caller has looked for the table"
    for field in read_json(table.state.schema)["fields"]:
        try:
            yield field["name"], parse_type(text_of(field["type"]))
        except TypeProblem:
            continue
    if columns is QUARANTINE:
        yield TEXT, Atomic("STRING")


def _with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    value = batch.column("value")
    try:
        text: Any = value.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: Spark compares such bytes too, so that a person is found in them
        text = pa.array([None if each is None else each.decode(errors="replace") for each in value.to_pylist()], pa.string())
    return batch.append_column(TEXT, text)
