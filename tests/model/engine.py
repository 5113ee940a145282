"""Where the engine's modules meet the model: a session, a DeltaTable and the broker's answers as the model has them.

Everything else of ingest/stream that decides is the real code: preflight, facts, in_force, decide, the tries and the
verified skip of commit, the ledger, opening, rebase and its plan, binding, the reader of checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from ingest import faults
from ingest.contract import Contract
from ingest.places import Places
from ingest.stream import batch, commit, facts, ledger, opening, rebase
from ingest.stream.contract_kept import CONTRACT_FILE
from ingest.stream.ledger_row import LedgerRow
from ingest.stream.ledger_summary import LedgerSummary, summary_of
from ingest.stream.offsets import BatchId
from ingest.stream.situation import BrokerFacts
from tests.model.delta import ModelLog, Row, Table, Version
from tests.model.patched import Patch, patched

if TYPE_CHECKING:
    from tests.model.world import World


class Conf:
    """A session's settings."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


class Session:
    """A driver's session; `writer` is who commits through it, as the truth has to know."""

    def __init__(self, world: World, writer: Any = None) -> None:
        self.world = world
        self.writer = writer
        self.conf = Conf()

    def createDataFrame(self, rows: Sequence[Row], _: object) -> Frame:  # noqa: N802
        return Frame(self, [("ledger", *row) for row in rows])


@dataclass
class Frame:
    """Rows on their way to a table."""

    sparkSession: Session  # noqa: N815
    rows: Sequence[Row]
    columns: tuple[str, ...] = ()

    @property
    def write(self) -> Frame:
        return self

    def alias(self, _: str) -> Frame:
        return self

    def format(self, _: str) -> Frame:
        return self

    def mode(self, _: str) -> Frame:
        return self

    def save(self, path: str) -> None:
        """A blind append."""
        _transaction(self.sparkSession, path, self.rows, blind=True)


class Merge:
    """DeltaTable as far as an insert-only MERGE needs it."""

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path, self._source = session, path, Frame(session, [])

    @staticmethod
    def forPath(session: Session, path: str) -> Merge:  # noqa: N802
        return Merge(session, path)

    def alias(self, _: str) -> Merge:
        return self

    def merge(self, source: Frame, _: object) -> Merge:
        self._source = source
        return self

    def whenNotMatchedInsert(self, *, values: object) -> Merge:  # noqa: N802
        return self

    def execute(self) -> Merge | None:
        done = _transaction(self._session, self._path, self._source.rows, blind=False)
        return self if done else None

    def collect(self) -> list[str]:
        """The row of counts that an executed MERGE returns."""
        return ["counts"]


class TableGone(Exception):
    """No table there."""


def _transaction(session: Session, path: str, rows: Sequence[Row], *, blind: bool) -> bool:
    """Delta's own rules: the pair skips, a conflict fails, a commit is atomic. False if it was skipped."""
    world, pair = session.world, None
    world.point("before_snapshot")
    table = world.tables.get(path)
    if table is None:
        raise TableGone(path)
    if commit.APP_ID in session.conf.values:
        pair = (session.conf.values[commit.APP_ID], int(session.conf.values[commit.VERSION]))
    read = table.number
    if pair is not None and table.newest.pairs.get(pair[0], -1) >= pair[1]:
        return False
    present = table.newest.rows
    world.point("after_snapshot")
    if world.tables.get(path) is not table:
        raise TableGone(path)
    keys = [row[0] for row in rows]

    def overlaps(version: Version) -> bool:
        if not world.skips_by_statistics:
            return True
        added = [row[0] for file in version.commit.added for row in version.files[file.path]]
        return bool(keys) and bool(added) and min(added) <= max(keys) and min(keys) <= max(added)

    conflict = table.conflict(read, pair[0] if pair else None, blind=blind, overlaps=overlaps)
    if conflict is not None:
        raise conflict
    new = rows if blind else [row for row in rows if row[0] not in present]
    metadata = session.conf.values.get(commit.METADATA)
    partition = (lambda row: int(row[1])) if not blind else None
    table.commit("WRITE" if blind else "MERGE", new, partition=partition, pair=pair, user_metadata=metadata)
    world.truth.committed(table, session.writer)
    world.point("after_commit")
    return True


def quarantined_by(frame: Frame, places: Places, id: BatchId) -> dict[int, int]:
    """The query of ingest/stream/standing.py."""
    rows = frame.sparkSession.world.tables[places.quarantine].newest.rows.values()
    return dict(Counter(row[1] for row in rows if row[2] == id))


def quarantined_ahead(session: Session, places: Places, query_id: str | None, ends: Mapping[int, int]) -> dict[tuple[str, str, int], int]:
    """The query of ingest/stream/standing.py."""
    found: dict[tuple[str, str, int], int] = {}
    for (topic_id, partition, offset), _, id, _ in session.world.tables[places.quarantine].newest.rows.values():
        key = (id.query_id, topic_id, partition)
        if id.query_id != query_id and offset >= ends.get(partition, 0):
            found[key] = max(found.get(key, 0), offset + 1)
    return found


def ledger_rows(table: Table) -> list[LedgerRow]:
    """What a ledger holds."""
    return [LedgerRow(*row[1:]) for content in table.newest.files.values() for row in content]


def summarise(world: World, path: str) -> LedgerSummary:
    """The queries of ingest/stream/ledger_reader.py, and its summary."""
    table = world.tables.get(path)
    if table is None:
        return LedgerSummary()
    rows = ledger_rows(table)
    newest: dict[tuple[str, str, int], LedgerRow] = {}
    reached: dict[tuple[str, str, int], int] = {}
    quarantined: dict[tuple[str, str, int], list[LedgerRow]] = {}
    for row in rows:
        if row.kind != "batch":
            continue
        key = (row.query_id, row.topic_id, row.partition)
        reached[key] = max(reached.get(key, 0), row.end_offset)
        if key not in newest or row.batch_id > newest[key].batch_id:
            newest[key] = row
        if row.quarantined > 0:
            quarantined.setdefault(key, []).append(row)
    told = [{**vars(row), "reached": reached[key]} for key, row in newest.items()]
    proven = [
        {
            **vars(each[0]),
            "first_batch": min(row.batch_id for row in each),
            "last_batch": max(row.batch_id for row in each),
            "start": min(row.start_offset for row in each),
        }
        for each in quarantined.values()
    ]
    return summary_of(told, [vars(row) for row in rows if row.kind != "batch"], proven)


class Clock:
    """datetime, as far as the ledger's rows of a rebase need it."""

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world

    def now(self, _: tzinfo) -> datetime:
        return self._world().now()


class Ids:
    """uuid: query ids in their order."""

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world

    def uuid4(self) -> Name:
        return Name(self._world().new_id("q"))


class Name(str):
    """A text with the one attribute of a UUID that is asked for."""

    __slots__ = ()

    @property
    def hex(self) -> str:
        return str(self)


@contextmanager
def connected(world: Callable[[], World]) -> Iterator[None]:
    """Let the engine's modules see the world that `world()` is, in this process and for as long as this lasts."""
    contracts: dict[bytes, Contract] = {}

    def stored_contract(files: Any, places: Any) -> Contract | None:
        data = files.read(f"{places.state}/{CONTRACT_FILE}")
        if data is not None and data not in contracts:
            contracts[data] = Contract.from_json(data.decode(), "contract.json")
        return None if data is None else contracts[data]

    hashes: dict[int, tuple[Contract, str]] = {}
    former_hash: Any = Contract.hash

    def hash_once(self: Contract) -> str:
        if id(self) not in hashes:
            hashes[id(self)] = (self, former_hash.fget(self))
        return hashes[id(self)][1]

    patches: list[Patch] = [(module, "DeltaLog", ModelLog) for module in (facts, ledger, opening, rebase)]
    patches += [
        (commit, "DeltaTable", Merge),
        (commit, "create_tables", lambda *_: world().create_tables()),
        (opening, "stored_contract", stored_contract),
        (rebase, "stored_contract", stored_contract),
        (batch, "quarantined_by", quarantined_by),
        (ledger, "quarantined_ahead", quarantined_ahead),
        (opening, "datetime", Clock(world)),
        (rebase, "datetime", Clock(world)),
        (rebase, "uuid", Ids(world)),
        (rebase, "summarise", lambda _, places: summarise(world(), places.ledger)),
        (rebase, "facts_of", lambda _, topic, __: BrokerFacts(topic.name, topic.id, world().topic.bounds())),
        # The same results, for speed: the rows of a ledger are flat, and a contract's hash does not change.
        (ledger, "asdict", vars),
        (Contract, "hash", property(hash_once)),
        (faults, "at", lambda name, *_: world().point(name)),
    ]
    with patched(patches):
        yield
