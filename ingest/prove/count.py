"""Counts rows of target and quarantine by their provenance, in the offset ranges that batches cover. It reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ingest.delta_sql import At, DataFusion, Engine, Spark, quoted, unreadable
from ingest.prove.balance import Finding
from ingest.prove.intervals import Offsets
from ingest.prove.piece import Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A list of a thousand broken ids helps nobody; the first ones lead to the cause.
SHOWN_MAX = 20
POSITION = ("_topic_id", "_partition", "_offset")
# The columns of the quarantine that say the same.
QUARANTINE_POSITION = ("topic_id", "partition", "offset")
Position = tuple[str, int, int]


@dataclass(frozen=True)
class Rows:
    """Rows of a table by their positions: those that meet `where`, without those whose position is among one of `but_not` too (none of
    which leaves out others itself); then each position once."""

    table: At
    columns: tuple[str, str, str] = POSITION
    where: str = "true"
    but_not: tuple[Rows, ...] = ()

    @property
    def tables(self) -> dict[str, At]:
        """What `sql` names."""
        return {"rows": self.table} | {f"others{n}": others.table for n, others in enumerate(self.but_not)}

    def sql(self, rows: str = "rows") -> str:
        """A query of them, from a table of this name: topic, partition and offset as `t`, `p` and `o`, none of them NULL."""
        t, p, o = self.columns
        named = f"coalesce(`{t}`, '') AS t, coalesce(`{p}`, -1) AS p, coalesce(`{o}`, -1) AS o"
        but = "".join(f" EXCEPT {others.sql(f'others{number}')}" for number, others in enumerate(self.but_not))
        return f"SELECT {named} FROM {{{rows}}} WHERE {self.where}{but}"


@dataclass(frozen=True)
class Counted:
    """How many rows lie in each piece, by its index, and the positions of some that lie in none with their number."""

    by_piece: dict[int, int]
    outside: int
    shown: tuple[Position, ...]

    @property
    def inside(self) -> int:
        """Rows in any piece."""
        return sum(self.by_piece.values())


def count(engine: Engine, rows: Rows, parts: Sequence[Piece]) -> Counted:
    """Count `rows` by piece. Raises Unreadable."""
    return _count_here(engine, rows, parts) if isinstance(engine, DataFusion) else _count_in_spark(engine, rows, parts)


def _count_here(engine: DataFusion, rows: Rows, parts: Sequence[Piece]) -> Counted:
    """Positions come by batches and are looked up in the sorted pieces of their partition."""
    of: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for index, part in enumerate(parts):
        of.setdefault((part.topic_id, part.partition), []).append((part.start, part.end, index))
    places = {key: np.array(sorted(each), np.int64).T for key, each in of.items()}
    topics = sorted({part.topic_id for part in parts})
    listed = ", ".join(quoted(topic) for topic in topics)
    counted: dict[int, int] = {}
    outside, shown = 0, list[Position]()
    for topic in topics:
        for partition, offsets in by_partition(engine, rows, f"t = {quoted(topic)}"):
            starts, ends, indexes = places.get((topic, partition), np.empty((3, 0), np.int64))
            place = np.searchsorted(starts, offsets, side="right") - 1
            inside = place >= 0
            inside[inside] = offsets[inside] < ends[place[inside]]
            for index, number in zip(*np.unique(indexes[place[inside]], return_counts=True), strict=True):
                counted[int(index)] = counted.get(int(index), 0) + int(number)
            strays = offsets[~inside]
            outside += len(strays)
            shown = sorted([*shown, *((topic, partition, int(o)) for o in np.sort(strays)[:SHOWN_MAX])])[:SHOWN_MAX]
    others = f"SELECT * FROM ({rows.sql()}) WHERE t NOT IN ({listed})" if topics else rows.sql()
    if foreign := engine.ask(f"SELECT count(*) AS n FROM ({others})", **rows.tables)[0]["n"]:
        some = engine.ask(f"SELECT * FROM ({others}) ORDER BY t, p, o LIMIT {SHOWN_MAX}", **rows.tables)
        outside += foreign
        shown = sorted([*shown, *((row["t"], row["p"], row["o"]) for row in some)])[:SHOWN_MAX]
    return Counted(counted, outside, tuple(shown))


def by_partition(engine: DataFusion, rows: Rows, where: str) -> Iterator[tuple[int, Offsets]]:
    """The offsets of those of `rows` that meet `where` (of `t`, `p` and `o`), by batches of one partition. Raises Unreadable."""
    for batch in engine.stream(f"SELECT p, o FROM ({rows.sql()}) WHERE {where}", **rows.tables):
        partitions, offsets = (np.asarray(batch.column(name)) for name in ("p", "o"))
        for partition in np.unique(partitions):
            yield int(partition), offsets[partitions == partition].astype(np.int64)


def _count_in_spark(engine: Spark, rows: Rows, parts: Sequence[Piece]) -> Counted:
    """Both sides are cut into buckets of offsets, so that an ordinary hash join finds the piece of a position."""
    from pyspark.sql import functions as F

    lengths = sum(part.end - part.start for part in parts)
    width = max(1, lengths // max(1, len(parts)))
    cut = [
        (part.topic_id, part.partition, bucket, part.start, part.end, index)
        for index, part in enumerate(parts)
        for bucket in range(part.start // width, (part.end - 1) // width + 1)
    ]
    ranges = engine.session.createDataFrame(cut, "t string, p int, bucket bigint, start bigint, end bigint, piece int")
    with unreadable():
        found = engine.frame(rows.sql(), **rows.tables).withColumn("bucket", F.expr(f"o div {width}"))
        on = [found[name] == ranges[name] for name in ("t", "p", "bucket")]
        on += [found["o"] >= ranges["start"], found["o"] < ranges["end"]]
        joined: DataFrame = found.join(F.broadcast(ranges), on, "left").select(found["t"], found["p"], found["o"], "piece")
        counts = joined.groupBy(F.coalesce("piece", F.lit(-1)).alias("piece")).count().collect()
        counted = {row["piece"]: row["count"] for row in counts}
        outside = counted.pop(-1, 0)
        strays = joined.where("piece IS NULL").orderBy("t", "p", "o").limit(SHOWN_MAX).collect() if outside else []
    return Counted(counted, outside, tuple((row["t"], row["p"], row["o"]) for row in strays))


def positions(engine: Engine, rows: Rows, topic_id: str) -> dict[int, Offsets]:
    """The offsets of those of `rows` that are of this topic, by partition. Raises Unreadable."""
    found: dict[int, list[Offsets]] = {}
    of_topic = f"t = {quoted(topic_id)}"
    if isinstance(engine, DataFusion):
        for partition, offsets in by_partition(engine, rows, of_topic):
            found.setdefault(partition, []).append(offsets)
    else:
        with unreadable():
            frame: Any = engine.frame(f"SELECT p, o FROM ({rows.sql()}) WHERE {of_topic}", **rows.tables).toPandas()
        for partition, of_partition in frame.groupby("p"):
            found[int(partition)] = [of_partition["o"].to_numpy().astype(np.int64)]
    return {partition: np.concatenate(parts) for partition, parts in found.items()}


def doubled(engine: Engine, target: At, ids: Mapping[str, bool]) -> Iterator[Finding]:
    """Event ids (columns, and whether they hold bytes) and positions that more than one row has. Raises Unreadable."""
    for columns, noun in ((ids, "event id"), (dict.fromkeys(POSITION, False), "position")):
        names = ", ".join(f"`{name}`" for name in columns)
        if not engine.ask(f"SELECT count(*) AS n FROM {{rows}} GROUP BY {names} HAVING count(*) > 1 LIMIT 1", rows=target):
            continue
        # Bytes stay bytes, which need not be text; of all else the text is the same in both engines.
        shown = (f"`{name}`" if is_bytes else f"CAST(`{name}` AS STRING)" for name, is_bytes in columns.items())
        texts = ", ".join(f"{each} AS id{number}" for number, each in enumerate(shown))
        each = f"SELECT {texts}, _partition AS p, _offset AS o, count(*) OVER (PARTITION BY {names}) AS n FROM {{rows}}"
        order = ", ".join(f"id{number}" for number in range(len(columns)))
        rows = engine.ask(f"SELECT * FROM ({each}) WHERE n > 1 ORDER BY {order}, p, o LIMIT {SHOWN_MAX**2}", rows=target)
        twice: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in rows:
            twice.setdefault(tuple(_text(row[f"id{number}"]) for number in range(len(columns))), []).append(row)
        for values, same in list(twice.items())[:SHOWN_MAX]:
            at = ", ".join(f"partition {row['p']} offset {row['o']}" for row in same[:SHOWN_MAX])
            yield Finding("ROW_TWICE", f"{noun} ({', '.join(values)}) has {same[0]['n']} rows in the target: {at}")


def doubled_records(engine: Engine, records: Rows) -> Iterator[Finding]:
    """Positions that stand in quarantine more than once: such a record would stand for one that is lost. Raises Unreadable."""
    sql = f"SELECT t, p, o, count(*) AS n FROM ({records.sql()}) GROUP BY t, p, o HAVING count(*) > 1 ORDER BY t, p, o LIMIT {SHOWN_MAX}"
    for row in engine.ask(sql, **records.tables):
        where = f"partition {row['p']} offset {row['o']} of topic id {row['t']}"
        yield Finding("ROW_TWICE", f"{where} stands {row['n']} times in quarantine")


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def both(engine: Engine, target: Rows, open_records: Rows) -> Iterator[Finding]:
    """Positions that stand in the target and, open, in quarantine. Raises Unreadable."""
    same = "a.t = b.t AND a.p = b.p AND a.o = b.o"
    sql = f"SELECT a.* FROM ({target.sql()}) a LEFT SEMI JOIN ({open_records.sql('records')}) b ON {same}"
    for row in engine.ask(f"{sql} ORDER BY a.t, a.p, a.o LIMIT {SHOWN_MAX}", rows=target.table, records=open_records.table):
        where = f"partition {row['p']} offset {row['o']} of topic id {row['t']}"
        yield Finding("IN_BOTH", f"{where} is a row of the target and stands in quarantine too")
