"""The Delta tables of one place, each opened once, so that all figures of a summary are of the same versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ingest.delta.delta_sql import DATAFUSION, unreadable
from ingest.runtime.files import local_path
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from deltalake import DeltaTable, QueryBuilder

KINDS = ("target", "quarantine", "ledger", "quality")


@dataclass(frozen=True)
class Stored:
    """One Delta table as it is stored: its version, its rows, and the number and bytes of the files of that version."""

    kind: str
    version: int
    rows: int
    files: int
    bytes: int


class OpenTables:
    """The tables that exist, at the versions that they had when they were opened. It runs SQL on them without a JVM."""

    def __init__(self, places: Places) -> None:
        from deltalake import DeltaTable

        paths = {kind: str(local_path(f"{places.root}/{kind}")) for kind in KINDS}
        with unreadable():
            self._tables: dict[str, DeltaTable] = {kind: DeltaTable(path) for kind, path in paths.items() if DeltaTable.is_deltatable(path)}

    def __contains__(self, kind: str) -> bool:
        return kind in self._tables

    def version(self, kind: str) -> int:
        """The version at which a table was opened; -1 if it does not exist."""
        return self._tables[kind].version() if kind in self._tables else -1

    @cached_property
    def _builder(self) -> QueryBuilder:
        from deltalake import QueryBuilder

        builder = QueryBuilder(DATAFUSION)
        for kind, table in self._tables.items():
            builder.register(kind, table)
        return builder

    def table(self, sql: str) -> pa.Table:
        """The result as Arrow. The text names the tables in braces, as in `delta_sql`. Raises Unreadable."""
        with unreadable():
            answer = self._builder.execute(sql.format_map({kind: f"`{kind}`" for kind in KINDS}))
            return pa.RecordBatchReader.from_stream(answer).read_all()

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """The rows of the result, as `table`."""
        rows: list[dict[str, Any]] = self.table(sql).to_pylist()
        return rows

    def stored(self) -> tuple[Stored, ...]:
        """Version, rows, files and bytes of each table. Raises Unreadable."""
        return tuple(map(self._stored, self._tables))

    def _stored(self, kind: str) -> Stored:
        table = self._tables[kind]
        rows = self.ask(f"SELECT count(*) AS n FROM {{{kind}}}")[0]["n"]
        with unreadable():
            sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_numpy()
            return Stored(kind, table.version(), rows, len(sizes), int(sizes.sum()))
