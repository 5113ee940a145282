"""A SQLAlchemy dialect with which Great Expectations (GX) speaks to DuckDB.

GX knows no DuckDB, and takes its SQL by the dialect's name. This one says `postgresql`, whose SQL DuckDB understands, but for regular
expressions: `~` becomes the macro `rlike` (duckdb_rows.py). The package duckdb-engine was tried: its cursor is its connection, which GX
gives back before it fetches. DuckDB's own cursor is a connection of its own, which needs no wrapper.
"""

from __future__ import annotations

from typing import Any

import duckdb
from sqlalchemy import types
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect

NAME = "oncelake_duckdb"
TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    **{"BOOLEAN": types.Boolean, "TINYINT": types.SmallInteger, "SMALLINT": types.SmallInteger, "INTEGER": types.Integer},
    **{"BIGINT": types.BigInteger, "FLOAT": types.Float, "DOUBLE": types.Double, "DECIMAL": types.Numeric, "DATE": types.Date},
    **{"TIMESTAMP": types.DateTime, "BLOB": types.LargeBinary},
}


class Compiler(PGCompiler):
    """PostgreSQL's SQL with a function for its operators of regular expressions."""

    def visit_custom_op_binary(self, element: Any, operator: Any, **more: Any) -> str:
        if operator.opstring not in ("~", "!~"):
            return str(super().visit_custom_op_binary(element, operator, **more))  # type: ignore[no-untyped-call]
        found = f"rlike({self.process(element.left, **more)}, {self.process(element.right, **more)})"
        return found if operator.opstring == "~" else f"(NOT {found})"


class DuckDBDialect(PGDialect):
    """The database in memory that this process has under the name in the URL: `oncelake_duckdb:///NAME`. It is only read."""

    driver = "duckdb"
    default_paramstyle = "qmark"
    statement_compiler = Compiler
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        return duckdb

    def create_connect_args(self, url: Any) -> Any:
        return [f":memory:{url.database}"], {}

    def initialize(self, connection: Any) -> None:
        self.default_schema_name = "main"

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Nothing: DuckDB raises without a transaction, and GX opens none."""

    do_begin = do_commit = do_rollback

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **more: Any) -> Any:
        rows = connection.exec_driver_sql(f'SELECT column_name, column_type FROM (DESCRIBE "{table_name}")').fetchall()
        return [
            {"name": name, "type": TYPES.get(kind.partition("(")[0], types.String)(), "nullable": True, "default": None}
            for name, kind in rows
        ]

    def get_table_names(self, connection: Any, schema: str | None = None, **more: Any) -> Any:
        return [name for (name,) in connection.exec_driver_sql("SELECT table_name FROM information_schema.tables").fetchall()]

    get_view_names = get_table_names

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **more: Any) -> bool:
        return table_name in self.get_table_names(connection)

    def get_pk_constraint(self, connection: Any, table_name: str, schema: str | None = None, **more: Any) -> Any:
        return {"constrained_columns": [], "name": None}


registry.register(NAME, __name__, DuckDBDialect.__name__)
