"""Find duplicates: event ids, positions, and positions in both target and quarantine (I3, I4). Writes nothing.

Without a JVM, 100 million ids must fit into memory. So this module sorts a 64-bit hash of each id, and compares the rows of repeated hashes
exactly. Spark spills to disk, so it groups the ids themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.decode.row_hash import HALF, Hashes, row_hashes
from ingest.delta.delta_sql import At, DataFusion, Engine
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.verify.balance import Finding, named
from ingest.verify.count import SHOWN_MAX, Account

# The number of hashes in memory at once: 1.6 GB. A larger table takes several passes.
AT_ONCE = 200_000_000


def doubled(engine: Engine, counted: Account, ids: Sequence[str], hashes: list[Hashes] | None = None) -> Iterator[Finding]:
    """The findings ROW_TWICE and IN_BOTH.

    ROW_TWICE: an event id or a position of several rows, or a position of several quarantined records. IN_BOTH: a position in both tables,
    unless the quarantined record is `replayed`. `ids` are the columns of the event id, `hashes` those of all event ids, as `account` has
    them. Raises Unreadable.
    """
    target, quarantine = counted.target.at, counted.quarantine.at
    rows, records = counted.target.rows, counted.quarantine.rows

    def place(row: Mapping[str, Any], source: str = "k0", partition: str = "k1", offset: str = "k2") -> str:
        return f"{named(counted.books, (row[source], row[partition]))} offset {row[offset]}"

    if ids != ("_topic_id", TARGET.partition, TARGET.offset):
        columns = [f"`{name}` AS k{number}" for number, name in enumerate(ids)]
        at = f"`{TARGET.source}` AS s, `{TARGET.partition}` AS p, `{TARGET.offset}` AS o"
        for same in repeated(engine, f"SELECT {', '.join(columns)}, {at} FROM {{rows}}", len(ids), rows, hashes, rows=target):
            # Positions, not the id: proof files keep findings for good, and an id may name a person whose data is erased later.
            places = ", ".join(place(row, *"spo") for row in same[:SHOWN_MAX])
            yield Finding("ROW_TWICE", f"{len(same)} rows in the target have the same event id: {places}")
    of_target, of_quarantine = (
        f"SELECT `{columns.source}` AS k0, `{columns.partition}` AS k1, `{columns.offset}` AS k2 FROM {{{name}}}"
        for columns, name in ((TARGET, "rows"), (QUARANTINE, "records"))
    )
    for same in repeated(engine, of_target, 3, rows, rows=target):
        yield Finding("ROW_TWICE", f"{place(same[0])} has {len(same)} rows in the target")
    if records:
        for same in repeated(engine, of_quarantine, 3, records, records=quarantine):
            yield Finding("ROW_TWICE", f"{place(same[0])} is in quarantine {len(same)} times")
        for row in _in_both(engine, of_target, f"{of_quarantine} WHERE state <> 'replayed'", rows=target, records=quarantine):
            yield Finding("IN_BOTH", f"{place(row)} is a row of the target and is in quarantine too")


def repeated(engine: Engine, sql: str, keys: int, size: int, known: list[Hashes] | None = None, **tables: At) -> list[list[dict[str, Any]]]:
    """Groups of rows of the query with equal values in k0 to k(`keys` - 1), at most SHOWN_MAX groups.

    `size` is the number of rows of the query, or more. `known` are the hashes of these values, if there are any. Raises Unreadable.
    """
    names = [f"k{number}" for number in range(keys)]
    if isinstance(engine, DataFusion):
        passes = [np.sort(np.concatenate(known))] if known else _sorted(engine, sql, names, size, tables)
        twice = [hashes[1:][hashes[1:] == hashes[:-1]] for hashes in passes]
        candidates = np.unique(np.concatenate(twice))[: SHOWN_MAX**2]
        alike = list(_with_hash(engine, sql, names, candidates, tables)) if candidates.size else []
    else:
        key = ", ".join(names)
        if not engine.ask(f"SELECT count(*) AS n FROM ({sql}) GROUP BY {key} HAVING count(*) > 1 LIMIT 1", **tables):
            return []
        counted = f"SELECT *, count(*) OVER (PARTITION BY {key}) AS n FROM ({sql})"
        alike = engine.ask(f"SELECT * FROM ({counted}) WHERE n > 1 ORDER BY {key} LIMIT {SHOWN_MAX**2}", **tables)
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in alike:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    several = sorted((key for key, same in found.items() if len(same) > 1), key=repr)
    return [sorted(found[key], key=lambda row: [row.get(name) or 0 for name in "spo"]) for key in several[:SHOWN_MAX]]


def _in_both(engine: Engine, of_target: str, in_quarantine: str, **tables: At) -> list[dict[str, Any]]:
    # The quarantine is on the left: the engines keep the left side in memory and stream the target.
    on = " AND ".join(f"a.k{number} = b.k{number}" for number in range(3))
    sql = f"SELECT a.* FROM ({in_quarantine}) a LEFT SEMI JOIN ({of_target}) b ON {on} ORDER BY a.k0, a.k1, a.k2 LIMIT {SHOWN_MAX}"
    return engine.ask(sql, **tables)


def _sorted(engine: DataFusion, sql: str, names: Sequence[str], rows: int, tables: Mapping[str, At]) -> Iterator[Hashes]:
    """The sorted hashes of all rows, in as many passes as fit into memory."""
    passes = rows // AT_ONCE + 1
    room = rows if passes == 1 else int(rows / passes * 1.01) + 1_000_000
    for share in range(passes):
        hashes, size = np.empty(room, np.uint64), 0
        for batch in engine.stream(f"SELECT {', '.join(names)} FROM ({sql})", **tables):
            some = row_hashes(pa.record_batch(batch).select(names).columns)
            if passes > 1:
                some = some[(some >> HALF) % np.uint64(passes) == share]
            hashes[size : size + some.size] = some
            size += some.size
        hashes = hashes[:size]
        hashes.sort()
        yield hashes


def _with_hash(engine: DataFusion, sql: str, names: Sequence[str], wanted: Hashes, tables: Mapping[str, At]) -> Iterator[dict[str, Any]]:
    for batch in engine.stream(sql, **tables):
        rows = pa.record_batch(batch)
        for at in np.flatnonzero(np.isin(row_hashes(rows.select(names).columns), wanted)).tolist():
            yield {name: rows.column(name)[at].as_py() for name in rows.schema.names}
