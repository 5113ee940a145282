"""The rows of target and quarantine by the batch that wrote them, and by their positions. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.decode import row_hash
from ingest.decode.row_hash import Hashes
from ingest.delta import row_sums
from ingest.delta.contract_change import EVENT_ID_PROPERTY
from ingest.delta.delta_sql import At, DataFusion, Engine, Source, Unreadable, arrow, unreadable
from ingest.delta.posting import Key, Sums, by_key
from ingest.delta.table_state import TableState
from ingest.kafka.intervals import Offsets
from ingest.kafka.offsets import LANE_BITS, OffsetRange, Partition, of_lane
from ingest.runtime.canonical_json import read_json


@dataclass(frozen=True)
class Columns:
    """A table's column names for a row's epoch, batch, source, partition and offset."""

    epoch: str
    batch: str
    source: str
    partition: str
    offset: str

    @property
    def position(self) -> tuple[str, str, str, str, str]:
        """All of them, in this order."""
        return self.epoch, self.batch, self.source, self.partition, self.offset

    def matched(self, found: pa.Table) -> dict[str, str]:
        """The columns of `found` that say which rows these are (e, b, s, p, o, and `state` if it has it), with the table's names."""
        return {**dict(zip("ebspo", self.position, strict=True)), **({"state": "state"} if "state" in found.column_names else {})}


TARGET = Columns("_epoch", "_batch", "_source", "_partition", "_offset")
QUARANTINE = Columns("epoch", "batch", "source", "partition", "offset")


def sums_at(
    engine: Engine,
    table: At,
    columns: Columns,
    ids: Sequence[str] = (),
    where: str = "true",
    only: pa.Table | None = None,
    kept: list[Hashes] | None = None,
) -> dict[Key, Sums]:
    """The sums of a table's rows by key: of those that meet `where`, and with `only` of those that it has (`Columns.matched`).

    `ids` are the columns of the event id (`hashed_ids`); `kept` gets the hashes of all event ids, without a JVM. Raises Unreadable.
    """
    names = (*columns.position, *ids)
    sql = f"SELECT {', '.join(f'r.`{name}` AS c{number}' for number, name in enumerate(names))} FROM {{rows}} r WHERE {where}"
    tables: dict[str, Source] = {"rows": table}
    if only is not None:
        same = " AND ".join(f"r.`{name}` = f.{to}" for to, name in columns.matched(only).items())
        sql, tables["found"] = sql.replace(" r WHERE", f" r LEFT SEMI JOIN {{found}} f ON {same} WHERE"), only
    if isinstance(engine, DataFusion):
        return by_key(row_sums.sums_of(map(pa.record_batch, engine.stream(sql, **tables)), kept))
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import from_arrow_schema

    for module in (row_hash, row_sums):  # workers get them by value
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    with unreadable():
        found = engine.frame(sql, **tables).mapInArrow(row_sums.sums_of, from_arrow_schema(row_sums.SUMS)).toArrow()
    return by_key(found.to_batches())


def hashed_ids(table: TableState) -> tuple[str, ...]:
    """The columns of the target's event id that its rows' hashes contain: none if the event id is the position.

    Raises Unreadable if somebody has removed the table's property.
    """
    text = table.properties.get(EVENT_ID_PROPERTY)
    if text is None:
        raise Unreadable(f"the table property {EVENT_ID_PROPERTY} was removed: it names the columns of the event id")
    document = read_json(text)
    return tuple(document) if isinstance(document, list) else () if document == "position" else ("_event_id",)


def in_ranges(ranges: Sequence[OffsetRange], columns: Columns) -> str:
    """SQL condition for the rows at positions in these ranges."""
    source, partition, offset = columns.source, columns.partition, columns.offset
    found = [
        f"(`{source}` = {r.source} AND `{partition}` = {r.partition} AND `{offset}` >= {r.start} AND `{offset}` < {r.end})"
        for r in ranges
        if len(r)
    ]
    return any_of(found)


def any_of(conditions: Sequence[str]) -> str:
    """SQL condition: one of these. As a balanced tree, because a chain of thousands overflows an engine's stack."""
    if len(conditions) < 2:
        return conditions[0] if conditions else "false"
    middle = len(conditions) // 2
    return f"({any_of(conditions[:middle])} OR {any_of(conditions[middle:])})"


def positions(engine: Engine, table: At, columns: Columns, where: str, but_not_at: int | None = None) -> dict[Partition, Offsets]:
    """The offsets of the rows that meet `where`, by partition, except those also in version `but_not_at`. Raises Unreadable."""

    def select(rows: str) -> str:
        names = f"`{columns.source}` AS s, `{columns.partition}` AS p, `{columns.offset}` AS o"
        return f"SELECT {names} FROM {{{rows}}} WHERE {where}"

    sql, tables = select("rows"), {"rows": table}
    if but_not_at is not None:
        sql, tables = f"{sql} EXCEPT {select('others')}", tables | {"others": At(table.path, but_not_at)}
    found: dict[Partition, list[Offsets]] = {}
    for batch in arrow(engine, sql, **tables):
        sources, partitions, offsets = (row_sums.whole(batch.column(name)) for name in "spo")
        lanes = sources << LANE_BITS | partitions
        for each in np.unique(lanes).tolist():
            found.setdefault(of_lane(each), []).append(offsets[lanes == each])
    return {partition: np.concatenate(parts) for partition, parts in found.items()}
