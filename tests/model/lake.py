"""A lake that one topic is written to, and what became of each event: the truth that a tale holds `ingest verify` against.

The truth is kept by event and by position as things happen, and knows nothing of ledger rows, ranges or the engine's counting.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ingest.stream.mark import Mark, Statement
from tests.model.delta import BEGIN, Row, Table, Version
from tests.model.kafka import Record, Topic
from tests.model.truth import Position
from tests.model.world import HOME, TABLES

TOPIC_ID = "T0"


class Lake:
    """Topic and tables. A row of the target is (id, payload, position), one of the quarantine (position, reason, batch, state).

    `sent` is what the topic held once, `promised` what has to be accounted for: what batches in force have read, but for what a rebase
    was told to jump over. `rows_ever` and `records_ever` are what stood at any time, for those who put something back;
    `counted` are the records in quarantine that a batch in the target has counted there, put or found: what a batch that was cut off
    has put there is nobody's yet. `vacuumed` are the target's files that VACUUM has taken.
    """

    def __init__(self, dice: random.Random) -> None:
        self.topic = _topic(dice)
        logs = enumerate(self.topic.partitions)
        self.sent: dict[Position, Record] = {(TOPIC_ID, p, o): r for p, log in logs for o, r in enumerate(log) if r is not None}
        self._clock = BEGIN
        self.tables = {path: Table(path, path, column, clock=self.now) for path, column in TABLES}
        self.target, self.quarantine, self.ledger = (self.tables[path] for path in (HOME.target, HOME.quarantine, HOME.ledger))
        for table in self.tables.values():
            table.commit("CREATE TABLE")
        self.promised: frozenset[Position] = frozenset()
        self.counted: set[Position] = set()
        self.rows_ever: set[Row] = set()
        self.records_ever: dict[Position, Row] = {}
        self.vacuumed: set[str] = set()
        # Who took an event's row last, now and at each version of the target; records taken from the quarantine that are no row.
        self._takers: dict[int, str] = {}
        self._takers_at: dict[int, dict[int, str]] = {0: {}}
        self._records_taken: set[Position] = set()

    def now(self) -> datetime:
        self._clock += timedelta(minutes=1)
        return self._clock

    @property
    def rows(self) -> Mapping[int, Row]:
        """The target's rows by event id."""
        return self.target.newest.rows

    @property
    def records(self) -> Mapping[Position, Row]:
        """The quarantine's by position."""
        return self.quarantine.newest.rows

    @property
    def positions(self) -> set[Position]:
        """Where the target's rows came from."""
        return {row[2] for row in self.rows.values()}

    def lost(self) -> list[Position]:
        """What was promised and is in no table, unless a DELETE was the last to take the event: that was meant. It was not for a record
        that somebody has taken from the quarantine since, but where it had become a row under a looser contract: its copy is not missed."""
        missing = (p for p in sorted(self.promised) if self.sent[p].id not in self.rows and p not in self.records)
        were_rows = {row[2] for row in self.rows_ever}
        owed = self._records_taken - were_rows
        return [p for p in missing if p in owed or self._takers.get(self.sent[p].id) != "DELETE"]

    @contextmanager
    def change(self, how: str, *, back: int | None = None) -> Iterator[None]:
        """Note what becomes of the events by a change of target or quarantine; `back` is where a RESTORE goes to."""
        rows, records = self.rows, self.records
        yield
        now, came = self.rows, self.rows.keys() - rows.keys()
        self._takers |= dict.fromkeys(rows.keys() - now.keys(), how)
        if back is not None:
            self._takers |= {id: taker for id, taker in self._takers_at[back].items() if id not in now}
        for id in came:
            self._takers.pop(id, None)
        self._takers_at[self.target.number] = dict(self._takers)
        taken = {p for p in (records.keys() - self.records.keys()) & self.counted if self.sent[p].id not in now}
        self._records_taken = {p for p in self._records_taken if self.sent[p].id not in came} - self.records.keys() | taken
        self.rows_ever |= set(now.values())
        self.records_ever = {**self.records, **self.records_ever}

    def write(
        self,
        table: Table,
        operation: str,
        rows: Iterable[Row] = (),
        removed: Iterable[str] = (),
        mark: Mark | None = None,
        **parameters: Any,
    ) -> Version:
        """Commit to target or quarantine, `mark` if it is a batch of ours."""
        statement: Statement = "target" if table is self.target else "quarantine"
        pair, metadata = (None, None) if mark is None else ((mark.app_id(statement), mark.id.number), mark.to_json())
        by = _partition if table is self.target else None
        version = table.commit(operation, rows, list(removed), partition=by, pair=pair, user_metadata=metadata, parameters=parameters)
        if operation == "OPTIMIZE":
            version.commit = replace(version.commit, changes_rows=False)
        if parameters == {"mode": "Overwrite"}:
            version.force = (table.number,)
        return version

    def vacuum(self) -> None:
        """Of the target only the newest version's files are left."""
        self.vacuumed |= {path for version in self.target.versions for path in version.files} - self.target.newest.files.keys()

    def readable(self, path: str, version: int) -> bool:
        """Whether VACUUM has left this version's files."""
        return path != HOME.target or self.vacuumed.isdisjoint(self.target.versions[version].files)


def _partition(row: Row) -> int:
    return int(row[2][1])


def _topic(dice: random.Random) -> Topic:
    """Records of both contracts' likes, copies of events (of another payload too), offsets without a record; more or less of each."""
    topic = Topic(TOPIC_ID)
    copies, gaps, differ = dice.choice((0, 0.1, 0.3)), dice.choice((0, 0, 0.15)), dice.random() < 0.3
    ids = 0
    events: list[int] = []
    for partition in range(dice.choice((1, 1, 2))):
        topic.add_partition()
        for _ in range(dice.choice((8, 14, 20))):
            record = None
            if dice.random() >= gaps:
                kind = dice.choices(("good", "poison", "odd"), (8, 1.2, 1.2))[0]
                if kind != "poison" and events and dice.random() < copies:
                    record = Record(dice.choice(events), dice.randint(0, 1) if differ else 0, kind)
                else:
                    ids += 1
                    record = Record(ids, 0, kind)
                    events += [ids] if kind != "poison" else []
            topic.partitions[partition].append(record)
    return topic
