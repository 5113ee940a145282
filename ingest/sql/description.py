"""Descriptions of the tables of a catalog: version and columns, read from their logs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ingest.delta.answer import sql_type
from ingest.sql.catalog import Catalog
from ingest.sql.engine import open_table


@dataclass(frozen=True)
class ColumnDescription:
    """A column with its SQL type."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class Description:
    """A table under its shortest name; `name` is the full name, `path` the location."""

    table: str
    name: str
    version: int
    path: str
    columns: tuple[ColumnDescription, ...]


def describe(catalog: Catalog) -> list[Description]:
    """Every table, ordered by name. Raises InvalidInput SQL_FAILED if one cannot be read."""
    found = []
    for name, table in catalog.listed.items():
        opened = open_table(table)
        columns = tuple(ColumnDescription(field.name, sql_type(field.type), field.nullable) for field in pa.schema(opened.schema()))
        found.append(Description(name, table.full, opened.version(), table.path, columns))
    return found
