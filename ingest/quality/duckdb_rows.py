"""The rows of a Delta table in DuckDB, which reads the data files of one version itself, without Spark.

The views are made from the table's schema: a column that a file lacks is NULL, a partition column has its value from the log. A TIMESTAMP
is a time of the machine's zone without a zone, as PySpark gives it. A field of a struct that the suite names is a column of that name.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.contract.sql_type import DeltaType
from ingest.decode.partition_value import kind_of, value_of
from ingest.delta.live_table import DataFile, files_at
from ingest.delta.table_state import TableState
from ingest.quality.duckdb_pattern import duckdb_pattern
from ingest.quality.scope import Slice
from ingest.quality.suite import Expected
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import local_path

TYPES = {
    **{"string": "VARCHAR", "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT"},
    **{"float": "FLOAT", "double": "DOUBLE", "date": "DATE", "binary": "BLOB", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"},
}
# Java's RLIKE by the patterns of `duckdb_pattern`.
RLIKE = (
    "CREATE MACRO rlike(text, patterns) AS CASE WHEN suffix(text, chr(13) || chr(10)) "
    "THEN regexp_matches(text, split_part(patterns, chr(0), 2)) ELSE regexp_matches(text, split_part(patterns, chr(0), 1)) END"
)
# The column with the path of a row's file.
FILE = "_read_from"
# Each query on a view looks at every file again, for 0.25 ms. A suite has some thirty queries; a table reads its files once.
FILES_MAX = 100
# Where values may be written if the memory does not suffice. Nothing is fetched from anywhere.
SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "parquet_metadata_cache": "true"}


class DuckDBRows:
    """The rows of the table at `path`, at the version of `state`. Close it at the end.

    `names` are the columns and fields of structs that a check reads, as its suite writes them: the columns of the views.
    """

    engine = "duckdb"

    def __init__(self, path: str, state: TableState, names: Sequence[str]) -> None:
        self._folder = os.path.realpath(local_path(path))
        self._files = files_at(path, state.version)
        self._fields: list[dict[str, Any]] = read_json(state.schema)["fields"]
        self._partition_by, self._names = state.partition_by, names
        self._spill = tempfile.TemporaryDirectory(prefix="ingest-check-")
        self.database = uuid.uuid4().hex
        self.connection = duckdb.connect(f":memory:{self.database}")
        for name, value in {**SETTINGS, "temp_directory": _text(self._spill.name)}.items():
            self.connection.execute(f"SET GLOBAL {name} = {value}")
        (self._zone,) = self.connection.execute("SELECT current_setting('TimeZone')").fetchone() or ("UTC",)
        self.connection.execute("SET GLOBAL TimeZone = 'UTC'")  # INT96, which Spark writes, has no zone: it is UTC
        self.connection.execute(RLIKE)

    def close(self) -> None:
        """Free the memory, and remove what was written to the disk."""
        self.connection.close()
        self._spill.cleanup()

    def most(self, slices: Sequence[Slice] | None) -> int:
        """The rows of the files that can contain rows of these slices (None: of all files). It is never too low."""
        files = self._of(slices)
        return sum(file.rows if file.rows is not None else int(pq.read_metadata(self._path(file)).num_rows) for file in files)

    def paths(self, slices: Sequence[Slice] | None) -> list[str]:
        """The files that can contain rows of these slices (None: all). DuckDB takes a path with signs of a glob as it is."""
        return [self._path(file) for file in self._of(slices)]

    def _of(self, slices: Sequence[Slice] | None) -> list[DataFile]:
        return [file for file in self._files if _can_contain(file, slices)]

    def _path(self, file: DataFile) -> str:
        return os.path.join(self._folder, file.path)

    def view(self, name: str, slices: Sequence[Slice] | None) -> str:
        """Make a view of the rows of these slices (None: of all rows), or a table of the rows of many files; returns its name."""
        files = self._of(slices)
        nothing = ", ".join(f"NULL::{duckdb_type(field['type'])} AS {_name(field['name'])}" for field in self._fields)
        rows = f"SELECT * FROM (SELECT {nothing}) WHERE false"
        if files:
            paths = ", ".join(map(_text, self.paths(slices)))
            found = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false, filename = {FILE!r})"
            joined = f" JOIN {self._partitions(name, files)} USING ({FILE})" if self._partition_by else ""
            rows += f" UNION ALL BY NAME SELECT * FROM {found}{joined}"
        where = " OR ".join(f"(_epoch = {each.epoch} AND _batch BETWEEN {each.first} AND {each.last})" for each in slices or ())
        kind = "TABLE" if len(files) > FILES_MAX else "VIEW"
        statement = f"CREATE {kind} {_name(name)} AS SELECT {', '.join(map(self._column, self._names))} FROM ({rows})"
        self.connection.execute(statement + (f" WHERE {where}" if where else ""))
        return name

    def _partitions(self, name: str, files: Sequence[DataFile]) -> str:
        """The table with the partition values of these files."""
        kinds = {field["name"]: kind_of(field["type"]) for field in self._fields}
        columns = {FILE: pa.array([self._path(file) for file in files])}
        for column in self._partition_by:
            values = [value_of(file.partition_values.get(column), kinds[column]) for file in files]
            columns[column] = pa.array(values, kinds[column])
        made = _name(f"partitions of {name}")
        self.connection.from_arrow(pa.table(columns)).create(made)
        return made

    def _column(self, path: str) -> str:
        expression, kind, _ = resolved(self._fields, path)
        value = f"timezone({_text(self._zone)}, {expression})" if kind == "timestamp" else expression
        return f"{value} AS {_name(path)}"

    def narrowed(self, view: str, names: set[str]) -> str:
        """The view: DuckDB reads only the columns that it needs."""
        return view

    def config(self, expected: Expected) -> Mapping[str, Any]:
        """The expectation with patterns that mean in DuckDB what they mean in Java."""
        kwargs = dict(expected.kwargs)
        if "regex" in kwargs:
            kwargs["regex"] = duckdb_pattern(kwargs["regex"])
        if "regex_list" in kwargs:
            kwargs["regex_list"] = [duckdb_pattern(each) for each in kwargs["regex_list"]]
        return {**expected.config, "kwargs": kwargs}

    def copies(self, view: str, columns: Sequence[str], ids: Sequence[str], most: int) -> list[dict[str, Any]]:
        """The ids of some rows whose values in these columns occur more than once, which GX's SQL does not find."""
        key, wanted = ", ".join(map(_name, columns)), ", ".join(map(_name, ids))
        counted = f"SELECT {wanted}, count(*) OVER (PARTITION BY {key}) AS copies FROM {_name(view)}"
        rows = self.connection.execute(f"SELECT {wanted} FROM ({counted}) WHERE copies > 1 ORDER BY ALL LIMIT {most}").fetchall()
        return [{name: str(value) if isinstance(value, date) else value for name, value in zip(ids, row, strict=True)} for row in rows]


def resolved(fields: Sequence[Mapping[str, Any]], path: str) -> tuple[str, DeltaType, bool]:
    """The expression and the type of a column or a field of a struct, and whether it may be NULL. Raises KeyError if there is none.

    Names are compared without case.
    """
    nullable = False
    kind: DeltaType = {"type": "struct", "fields": list(fields)}
    parts = []
    for part in path.split("."):
        inside = kind.get("fields", ()) if isinstance(kind, dict) else ()
        field = next((each for each in inside if each["name"].lower() == part.lower()), None)
        if field is None:
            raise KeyError(path)
        kind, nullable = field["type"], nullable or field["nullable"]
        parts.append(_name(field["name"]))
    return ".".join(parts), kind, nullable


def duckdb_type(kind: DeltaType) -> str:
    """The type in DuckDB for a type in Delta's schema. Raises KeyError for one that it does not have, such as VARIANT."""
    if isinstance(kind, str):
        return kind.upper() if kind.startswith("decimal(") else TYPES[kind]
    if kind["type"] == "struct":
        fields = (f"{_name(each['name'])} {duckdb_type(each['type'])}" for each in kind["fields"])
        return f"STRUCT({', '.join(fields)})"
    if kind["type"] == "array":
        return f"{duckdb_type(kind['elementType'])}[]"
    return f"MAP({duckdb_type(kind['keyType'])}, {duckdb_type(kind['valueType'])})"


def _can_contain(file: DataFile, slices: Sequence[Slice] | None) -> bool:
    """Whether the statistics leave it open that the file has rows of these slices."""
    return slices is None or any(
        file.least.get("_epoch", each.epoch) <= each.epoch <= file.greatest.get("_epoch", each.epoch)
        and file.least.get("_batch", each.first) <= each.last
        and each.first <= file.greatest.get("_batch", each.last)
        for each in slices
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
