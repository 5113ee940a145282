"""The rows of target and quarantine by the batch that wrote them, and by their positions. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ingest.decode import row_hash
from ingest.decode.row_hash import Hashes
from ingest.delta import row_sums
from ingest.delta.contract_change import EVENT_ID_PROPERTY
from ingest.delta.delta_sql import At, DataFusion, Engine, Source, Unreadable, quoted, unreadable
from ingest.delta.posting import Key, Sums, by_key
from ingest.delta.table_state import TableState
from ingest.kafka.intervals import Intervals, Offsets
from ingest.kafka.offsets import OffsetRange
from ingest.runtime.canonical_json import read_json

if TYPE_CHECKING:
    from pyspark.sql import Column


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
    partition, offset = columns.partition, columns.offset
    return " OR ".join(f"(`{partition}` = {r.partition} AND `{offset}` >= {r.start} AND `{offset}` < {r.end})" for r in ranges) or "false"


def of_epochs(topics: Mapping[int, str], value: Mapping[str, str], otherwise: str) -> str:
    """SQL expression over a target row: the `value` of the topic id of its epoch, or `otherwise`. `topics` maps epochs to topic ids."""
    runs = [(topic, [epoch for epoch, _ in run]) for topic, run in groupby(sorted(topics.items()), key=lambda each: each[1])]
    cases = (f"WHEN `{TARGET.epoch}` BETWEEN {epochs[0]} AND {epochs[-1]} THEN {value[topic]}" for topic, epochs in runs)
    return f"CASE {' '.join(cases)} ELSE {otherwise} END" if runs else otherwise


def in_target(topics: Mapping[int, str], topic_id: str) -> str:
    """SQL condition for the target rows of this topic."""
    return of_epochs(topics, {topic: str(topic == topic_id).lower() for topic in topics.values()}, "false")


def in_quarantine(topic_id: str) -> str:
    """SQL condition for the quarantined records of this topic."""
    return f"topic_id = {quoted(topic_id)}"


def positions(engine: Engine, table: At, columns: Columns, where: str, but_not_at: int | None = None) -> dict[int, Offsets]:
    """The offsets of the rows that meet `where`, by partition, except those also in version `but_not_at`. Raises Unreadable."""

    def select(rows: str) -> str:
        return f"SELECT `{columns.partition}` AS p, `{columns.offset}` AS o FROM {{{rows}}} WHERE {where}"

    sql, tables = select("rows"), {"rows": table}
    if but_not_at is not None:
        sql, tables = f"{sql} EXCEPT {select('others')}", tables | {"others": At(table.path, but_not_at)}
    found: dict[int, list[Offsets]] = {}
    if isinstance(engine, DataFusion):
        for batch in engine.stream(sql, **tables):
            partitions, offsets = (np.asarray(batch.column(name)) for name in ("p", "o"))
            for partition in np.unique(partitions):
                found.setdefault(int(partition), []).append(offsets[partitions == partition].astype(np.int64))
    else:
        with unreadable():
            frame: Any = engine.frame(sql, **tables).toPandas()
        for of, rows in frame.groupby("p"):
            found[int(of)] = [rows["o"].to_numpy().astype(np.int64)]
    return {partition: np.concatenate(parts) for partition, parts in found.items()}


def in_epochs(epochs: Sequence[int]) -> Column:
    """Rows of these epochs. There may be tens of thousands, so consecutive epochs are one condition."""
    from pyspark.sql import functions as F

    runs = Intervals.of_offsets(epochs)
    found = F.lit(False)
    for start, end in zip(runs.starts.tolist(), runs.ends.tolist(), strict=True):
        found |= F.col("_epoch").between(start, end - 1)
    return found
