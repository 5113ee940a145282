"""Count the rows of target and quarantine by the batch that wrote them. Reads no user columns, and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, DataFusion, Engine, quoted, unreadable
from ingest.kafka.intervals import Intervals, Offsets
from ingest.kafka.offsets import OffsetRange
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import Column

Key = tuple[int, int, int]
"""Epoch, batch and partition; -1 where a row has NULL."""


@dataclass(frozen=True)
class Columns:
    """A table's column names for a row's epoch, batch, partition and offset."""

    epoch: str
    batch: str
    partition: str
    offset: str


TARGET = Columns("_epoch", "_batch", "_partition", "_offset")
QUARANTINE = Columns("epoch", "batch", "partition", "offset")


@dataclass(frozen=True)
class Group:
    """The rows of one key: their number, and their least and greatest offset (-1 if no row has one)."""

    rows: int
    first: int
    last: int


NONE = Group(0, -1, -1)


def groups(engine: Engine, table: At, columns: Columns, where: str = "true") -> dict[Key, Group]:
    """A table's rows by key. Raises Unreadable."""
    names = f"`{columns.epoch}`, `{columns.batch}`, `{columns.partition}`"
    keys = f"`{columns.epoch}` AS e, `{columns.batch}` AS b, `{columns.partition}` AS p"
    figures = f"count(*) AS n, min(`{columns.offset}`) AS first, max(`{columns.offset}`) AS last"
    sql = f"SELECT {keys}, {figures} FROM {{rows}} WHERE {where} GROUP BY {names}"
    found = ({name: -1 if value is None else value for name, value in row.items()} for row in engine.ask(sql, rows=table))
    return {(row["e"], row["b"], row["p"]): Group(row["n"], row["first"], row["last"]) for row in found}


def found(engine: Engine, places: Places, target_version: int | None, quarantine_version: int | None) -> dict[Key, tuple[int, int]]:
    """The number of target rows and of quarantined records (in any state) by the (epoch, batch, partition) that wrote them.

    A missing table counts as empty. Raises Unreadable.
    """
    target = groups_at(engine, places, At(places.target, target_version), TARGET)
    quarantine = groups_at(engine, places, At(places.quarantine, quarantine_version), QUARANTINE)
    return {key: (target.get(key, NONE).rows, quarantine.get(key, NONE).rows) for key in target.keys() | quarantine.keys()}


def groups_at(engine: Engine, places: Places, table: At, columns: Columns) -> dict[Key, Group]:
    """One table's rows by key; empty if the table does not exist. Raises Unreadable."""
    there = DeltaLog(files_of(places.lake, engine.session), table.path).exists()
    return groups(engine, table, columns) if there else {}


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
