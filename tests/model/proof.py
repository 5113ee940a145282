"""`ingest verify` over the model's tables: its own code, with SQL answered by SQLite from the rows of their versions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Protocol

import pyarrow as pa

from ingest.delta_sql import At, DataFusion, Unreadable
from ingest.prove import done
from ingest.prove import verify as prove
from ingest.prove.verify import Verified
from ingest.stream import ledger_row
from tests.model.delta import ModelLog, Row, Table
from tests.model.engine import ledger_rows
from tests.model.patched import patched
from tests.model.truth import Position
from tests.model.world import HOME, World

TARGET = ("id", "n", "_topic_id", "_partition", "_offset")
QUARANTINE = ("topic_id", "partition", "offset", "query_id", "batch_id", "state", "reason_code")
# SQLite has no semi join; verify asks one, in this shape.
SEMI_JOIN = re.compile(r"(.*) LEFT SEMI JOIN (\(.*\)) b ON (.*) ORDER BY (.*)", re.DOTALL)


class HasTables(Protocol):
    """Tables by path: a world, or the lake of a tale."""

    tables: dict[str, Table]


class Answers(DataFusion):
    """The engine that verify asks. `vacuumed`: of the target only the newest version's files are there."""

    def __init__(self, world: HasTables, *, vacuumed: bool = False) -> None:
        self.world, self.vacuumed = world, vacuumed

    def ask(self, sql: str, **tables: At) -> list[dict[str, Any]]:
        if "ledger" in tables:  # the one question to it: all rows, in this order
            rows = ledger_rows(self.world.tables[HOME.ledger])
            rows.sort(key=lambda row: (row.query_id, row.batch_id, row.kind, row.topic_id, row.partition, row.start_offset))
            return [asdict(row) for row in rows]
        database = sqlite3.connect(":memory:")
        database.row_factory = sqlite3.Row
        for name, at in tables.items():
            columns, content = self._content(at)
            database.execute(f"CREATE TABLE `{name}` ({', '.join(f'`{column}`' for column in columns)})")
            database.executemany(f"INSERT INTO `{name}` VALUES ({', '.join('?' * len(columns))})", content)
        text = sql.format_map({name: f"`{name}`" for name in tables})
        if (semi := SEMI_JOIN.fullmatch(text)) is not None:
            text = f"{semi[1]} WHERE EXISTS (SELECT 1 FROM {semi[2]} b WHERE {semi[3]}) ORDER BY {semi[4]}"
        with database:
            return [dict(row) for row in database.execute(text)]

    def stream(self, sql: str, **tables: At) -> Iterator[Any]:
        rows = self.ask(sql, **tables)
        yield pa.record_batch({name: pa.array([row[name] for row in rows], pa.int64()) for name in ("p", "o")})

    def _content(self, at: At) -> tuple[Sequence[str], list[Row]]:
        table = self.world.tables[at.path]
        version = table.number if at.version is None else at.version
        gone = self.vacuumed and at.path == HOME.target and version < table.number
        if gone or not table.log_from <= version <= table.number:
            raise Unreadable(f"{at.path} version {version}")
        rows = table.versions[version].rows.values()
        if at.path == HOME.target:
            return TARGET, [(row[0], row[3], *row[2]) for row in rows]
        return QUARANTINE, [(*row[0], row[2].query_id, row[2].number, "open", row[3]) for row in rows]


def has_tables(world: World) -> bool:
    """Whether there is anything to verify: without them it says TABLE_MISSING."""
    return all(path in world.tables for path in (HOME.target, HOME.quarantine, HOME.ledger))


def verified(world: World, *, vacuumed: bool = False) -> Verified:
    """What `ingest verify` says of this world."""
    answers = Answers(world, vacuumed=vacuumed)
    stands: list[tuple[Any, str, Any]] = [(module, "files_of", lambda *_: world.files) for module in (prove, done)]
    stands.append((prove, "DeltaLog", ModelLog))
    with patched([*stands, (ledger_row, "DataFusion", lambda: answers)]):
        return prove.verify(answers, world.contract, HOME)


def lost(world: World) -> list[Position]:
    """Records of the topic at hand that are in no table, in no recorded gap, and that nobody has deleted, whoever is to blame."""
    truth, topic, rows = world.truth, world.topic, world.tables[HOME.target].newest.rows
    quarantine = world.tables[HOME.quarantine].newest.rows
    found = []
    for partition, log in enumerate(topic.partitions):
        origin = truth.origins.get((topic.id, partition), topic.log_start[partition])
        gaps = [(start, end) for topic_id, p, start, end in truth.recorded if (topic_id, p) == (topic.id, partition)]
        for offset, record in enumerate(log):
            if record is None or offset < origin or any(start <= offset < end for start, end in gaps):
                continue
            position = (topic.id, partition, offset)
            is_row = record.id in rows and record.kind != "poison"
            if not (is_row or record.id in truth.deleted or position in quarantine):
                found.append(position)
    return found


@contextmanager
def without(world: World, path: str, key: Any) -> Iterator[None]:
    """This one row never came to the table, whatever its log says."""
    kept = [(version, version.rows) for version in world.tables[path].versions]
    for version, rows in kept:
        version.rows = {each: row for each, row in rows.items() if each != key}
    try:
        yield
    finally:
        for version, rows in kept:
            version.rows = rows
