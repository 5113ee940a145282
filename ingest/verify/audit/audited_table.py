"""A table that others wrote, at one version: its position and id columns, and what they contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.contract.problem import one_of
from ingest.decode.row_hash import Hashes, row_hashes
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, arrow, quoted
from ingest.kafka.intervals import Offsets
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import files_of

# Partition, offset and topic column as the usual writers name them. A dot leads into a struct.
USUAL: tuple[tuple[str, str, str], ...] = (
    ("_partition", "_offset", "_topic"),  # Oncelake
    ("kafka_partition", "kafka_offset", "kafka_topic"),
    ("_kafka_partition", "_kafka_offset", "_kafka_topic"),
    ("__kafka_partition", "__kafka_offset", "__kafka_topic"),
    ("__partition", "__offset", "__topic"),
    ("meta.kafka.partition", "meta.kafka.offset", "meta.kafka.topic"),  # kafka-delta-ingest
    ("_hoodie_kafka_source_partition", "_hoodie_kafka_source_offset", ""),  # Hudi's KafkaOffsetPostProcessor
    ("_kafka_metadata_partition", "_kafka_metadata_offset", "_kafka_metadata_topic"),  # Iceberg's KafkaMetadataTransform
    ("_kafka_metadata.partition", "_kafka_metadata.offset", "_kafka_metadata.topic"),
    ("partition", "offset", "topic"),  # Spark's own columns, and those of Flink's examples
)
SOURCE = "_source"  # the topic's number in tables of Oncelake
ID_TYPES = ("string", "binary", "byte", "short", "integer", "long")


@dataclass(frozen=True)
class PositionColumns:
    """The columns of a row's position; `topic` is None if the table has rows of one topic only."""

    partition: str
    offset: str
    topic: str | None = None


@dataclass(frozen=True)
class AuditedTable:
    """A table at a version. `fields` maps each column to its Delta type; the fields of structs are named with dots."""

    engine: Engine
    at: At
    fields: dict[str, str]

    @staticmethod
    def open(engine: Engine, path: str) -> AuditedTable:
        """The table at its newest version. Raises InvalidInput TABLE_MISSING, Refused LOG_TORN."""
        state = DeltaLog(files_of(path, engine.session), path).state()
        if state is None:
            expected = "a folder with a _delta_log."
            raise InvalidInput("TABLE_MISSING", f"{path} is no Delta table.", expected=expected, remedy="correct the path.")
        return AuditedTable(engine, At(path, state.version), dict(_fields(read_json(state.schema)["fields"])))

    def known(self, column: str, option: str) -> str:
        """The column, if the table has it. Raises InvalidInput AUDIT_COLUMN."""
        if column not in self.fields:
            raise InvalidInput(
                "AUDIT_COLUMN",
                f"the table has no column {column}.",
                expected=f"{one_of(self.fields, column)}.",
                remedy=f"correct {option}; a dot leads into a struct, as in meta.kafka.offset.",
            )
        return column

    def id_column(self, column: str) -> str:
        """The column, if it can be compared with ids of records. Raises InvalidInput AUDIT_COLUMN."""
        if (kind := self.fields[self.known(column, "--event-id")]) not in ID_TYPES:
            raise InvalidInput(
                "AUDIT_COLUMN",
                f"the column {column} is of the type {kind}, whose values have no one form as text in a record.",
                expected=f"an event id of the type {', '.join(ID_TYPES)}.",
                remedy="name another column with --event-id.",
            )
        return column

    def usual_positions(self) -> PositionColumns | None:
        """The position columns by their usual names, in any case; None if there are none.

        Raises InvalidInput AUDIT_COLUMN for a table that Oncelake has filled from several topics, and Unreadable.
        """
        names = {name.lower(): name for name in self.fields}
        for partition, offset, topic in USUAL:
            if partition in names and offset in names:
                if partition == "_partition" and SOURCE in self.fields and self._sources() > 1:
                    raise InvalidInput(
                        "AUDIT_COLUMN",
                        f"the table has rows of several topics, which the column {SOURCE} numbers.",
                        expected="a table of one topic, or with a column of the topics' names.",
                        remedy="`ingest verify --against-kafka` compares each row of a table of Oncelake with its own topic.",
                    )
                return PositionColumns(names[partition], names[offset], names.get(topic))
        return None

    def _sources(self) -> int:
        return int(self.engine.ask(f"SELECT count(DISTINCT {SOURCE}) AS n FROM {{rows}}", rows=self.at)[0]["n"])

    def rows(self) -> int:
        """The number of rows. Raises Unreadable."""
        return int(self.engine.ask("SELECT count(*) AS n FROM {rows}", rows=self.at)[0]["n"])

    def positions(self, columns: PositionColumns, topic: str) -> tuple[dict[int, Offsets], int]:
        """The offsets of the rows by partition, and the number of rows without a position. Raises Unreadable."""
        names = f"CAST({_sql(self, columns.partition)} AS BIGINT) AS p, CAST({_sql(self, columns.offset)} AS BIGINT) AS o"
        found: dict[int, list[Offsets]] = {}
        without = 0
        for batch in self._select(names, columns.topic, topic):
            whole = batch.filter(pc.and_(batch["p"].is_valid(), batch["o"].is_valid()))
            without += batch.num_rows - whole.num_rows
            partitions, offsets = (np.asarray(whole[name]) for name in ("p", "o"))
            for partition in np.unique(partitions):
                found.setdefault(int(partition), []).append(offsets[partitions == partition].astype(np.int64))
        return {partition: np.concatenate(parts) for partition, parts in found.items()}, without

    def ids(self, columns: Sequence[str], topic_column: str | None, topic: str) -> tuple[Hashes, int]:
        """The hash of each row's event id, and the number of rows without an id. Raises Unreadable."""
        parts: list[Hashes] = []
        without = 0
        for batch in self._ids(columns, topic_column, topic):
            whole = batch.drop_null()
            without += batch.num_rows - whole.num_rows
            parts.append(row_hashes(whole.columns))
        return np.concatenate(parts) if parts else np.empty(0, np.uint64), without

    def texts(self, columns: Sequence[str], topic_column: str | None, topic: str, wanted: Hashes) -> dict[int, str]:
        """The event ids with these hashes as text, by hash. Raises Unreadable."""
        found: dict[int, str] = {}
        for batch in self._ids(columns, topic_column, topic) if wanted.size else ():
            whole = batch.drop_null()
            hashes = row_hashes(whole.columns)
            at = np.flatnonzero(np.isin(hashes, wanted))
            parts = [column.take(pa.array(at)).to_pylist() for column in whole.columns]
            found.update(zip(hashes[at].tolist(), map(id_text, zip(*parts, strict=True)), strict=True))
        return found

    def _ids(self, columns: Sequence[str], topic_column: str | None, topic: str) -> Iterator[pa.RecordBatch]:
        names = ", ".join(f"{_sql(self, column)} AS k{number}" for number, column in enumerate(columns))
        for batch in self._select(names, topic_column, topic):
            yield pa.record_batch([as_bytes(column) for column in batch.columns], names=batch.schema.names)

    def _select(self, names: str, topic_column: str | None, topic: str) -> Iterator[pa.RecordBatch]:
        where = "" if topic_column is None else f" WHERE {_sql(self, topic_column)} = {quoted(topic)}"
        return arrow(self.engine, f"SELECT {names} FROM {{rows}}{where}", rows=self.at)


def as_bytes(column: pa.Array) -> pa.Array:
    """Ids as bytes: numbers become decimal text."""
    return (column.cast(pa.string()) if pa.types.is_integer(column.type) else column).cast(pa.large_binary())


def id_text(parts: Iterable[bytes]) -> str:
    """An id for display and lists. Bytes that are not text are escaped."""
    return ", ".join(part.decode(errors="backslashreplace") for part in parts)


def _fields(fields: Iterable[dict[str, Any]], prefix: str = "") -> Iterator[tuple[str, str]]:
    for each in fields:
        kind, name = each["type"], f"{prefix}{each['name']}"
        yield name, kind if isinstance(kind, str) else kind["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _fields(kind["fields"], f"{name}.")


def _sql(table: AuditedTable, column: str) -> str:
    """A column, or a field of a struct, in SQL that both engines accept."""
    # A column's own name may contain a dot: the longest name that is a struct leads inwards.
    outer = next((name for name, kind in table.fields.items() if kind == "struct" and column.startswith(f"{name}.")), None)
    words = [column] if outer is None else [outer, *column[len(outer) + 1 :].split(".")]
    first, *inner = (word.replace("{", "{{").replace("}", "}}") for word in words)
    return "`" + first.replace("`", "``") + "`" + "".join(f"['{word.replace(chr(39), chr(39) * 2)}']" for word in inner)
