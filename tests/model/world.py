"""The whole state, and everything that can happen to it: what users, Kafka, Delta, time and crashes do, one operation each.

An operation is a tuple (name, arguments); one that does not fit the state does nothing, so that a schedule with parts left
out is a schedule too. `go` and `rebase` carry (k, operation): what interrupts them at their k-th change of a file or table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from delta import exceptions as delta

from ingest.contract import Contract
from ingest.errors import Bug, IngestError
from ingest.places import Places
from ingest.stream import commit
from tests.model import operator
from tests.model.contracts import PIPELINE, TABLE, contract
from tests.model.delta import BEGIN, DoubledKey, Table
from tests.model.driver import Driver, Locked, SparkFailed
from tests.model.engine import TableGone
from tests.model.files import ModelFiles, Tree
from tests.model.kafka import DataLoss, Record, Topic
from tests.model.truth import Truth, Violation

Op = tuple[Any, ...]
PLACES = (Places("/lake", "/checkpoints", PIPELINE, TABLE), Places("/lake", "/others", PIPELINE, TABLE))
HOME = PLACES[0]
# An event: a driver or a rebase was at work on another checkpoint than HOME's.
ELSEWHERE = "another checkpoint"
TABLES = ((HOME.target, "_partition"), (HOME.quarantine, "partition"), (HOME.ledger, ""))
# What may end a driver beside the engine's own errors: Spark, Delta and the disk.
EXPECTED = (SparkFailed, DataLoss, TableGone, delta.ConcurrentTransactionException, *commit.CONFLICTS, OSError)


class Crash(BaseException):
    """SIGKILL."""


class StoreFailed(OSError):
    """The store reports an error; whether it has done what was asked is another matter."""


@dataclass(frozen=True)
class Planted:
    """Bugs in the parts of a batch that the model itself plays."""

    quarantine_last: bool = False
    offsets_from_data: bool = False
    no_dedup: bool = False
    decides_once: bool = False
    topic_asked_once: bool = False


@dataclass(frozen=True)
class Setting:
    """What does not change in a schedule."""

    partitions: int = 1
    limit: int = 2
    conflicts: str = "batch"
    ledger_every: int = 1
    skips_by_statistics: bool = False


class World:
    """The state. `drivers` are by number; `error` is what the last start, run or rebase was ended by."""

    def __init__(self, setting: Setting = Setting(), planted: Planted = Planted()) -> None:
        self.setting, self.planted = setting, planted
        self.limit, self.skips_by_statistics = setting.limit, setting.skips_by_statistics
        self.topic = Topic("T0")
        for _ in range(setting.partitions):
            self.topic.add_partition()
        self.tables: dict[str, Table] = {}
        self.files = ModelFiles(self)
        self.drivers: dict[int, Driver] = {}
        self.error: Exception | None = None
        self.truth = Truth(self)
        self.strict = False
        self.events: set[str] = set()
        self._ids = 0
        self._clock = BEGIN
        self._batches = 0
        self.saved: dict[int, Tree] = {}
        self.backup: tuple[list[Table | None], Tree] | None = None
        self._working: list[Driver] = []
        self._countdown: int | None = None
        self._inner: Op = ()
        self._locks: dict[str, Driver] = {}

    # What the engine and the drivers ask for.

    @property
    def contract(self) -> Contract:
        return contract(self.setting.conflicts, self.strict)

    def new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}{self._ids}"

    def now(self) -> datetime:
        self._clock += timedelta(seconds=1)
        return self._clock

    def minute_passed(self) -> bool:
        self._batches += 1
        return self._batches % self.setting.ledger_every == 0

    def create_tables(self) -> None:
        for path, column in TABLES:
            if path not in self.tables:
                self.point("file")
            if path not in self.tables:  # somebody else may have made it in between
                mark = {"oncelake": 1, "kind": "created", "pipeline": HOME.pipeline, "table": HOME.table}
                self.tables[path] = Table(path, self.new_id("t"), column, clock=self.now)
                self.tables[path].commit("CREATE TABLE", user_metadata=json.dumps(mark))

    def take_locks(self, driver: Driver) -> None:
        """One lock in the checkpoint, one beside the tables, for as long as the driver lives."""
        if driver.bypass:
            return
        names = (driver.places.checkpoint, driver.places.root)
        if any(name in self._locks for name in names):
            raise Locked
        self._locks.update(dict.fromkeys(names, driver))

    def point(self, _: str) -> None:
        """A place where something else can come in between."""
        if self._countdown is None:
            return
        self._countdown -= 1
        if self._countdown > 0:
            return
        inner, self._countdown = self._inner, None
        if inner[0] == "crash":
            raise Crash
        if inner[0] == "fail":
            raise StoreFailed("the store reports an error")
        self.apply(inner)

    # What happens.

    def apply(self, op: Op) -> None:
        """Let it happen. Raises Violation."""
        getattr(self, f"_{op[0]}")(*op[1:])

    def _produce(self, partition: int, records: tuple[tuple[int, int, str] | None, ...]) -> None:
        if partition < len(self.topic.partitions):
            self.topic.partitions[partition].extend(None if each is None else Record(*each) for each in records)

    def _go(self, number: int, place: int, bypass: bool, steps: int, k: int, inner: Op) -> None:
        """A driver goes on by `steps` steps, or is started."""
        driver = self.drivers.get(number)
        if driver is None:
            driver = self.drivers[number] = Driver(self, PLACES[place], bypass=bypass)
            if len(self.drivers) > 1:
                self.events.add("bypass")
            self._note_place(place)
        if driver not in self._working:
            self._guarded(k, inner, lambda: self.advance(number, steps))

    def advance(self, number: int, steps: int) -> None:
        """At most `steps` steps of a driver, until it has nothing to do or has ended."""
        driver = self.drivers[number]
        self._working.append(driver)
        try:
            for _ in range(steps):
                if not driver.step():
                    self._ended(number)
                    return
                if driver.idle and not driver.stop:
                    return
        except Crash:
            self._ended(number)
        except Exception as error:
            self._ended(number)
            self.error = self.judged(error)
        finally:
            self._working.remove(driver)

    def judged(self, error: Exception) -> Exception:
        """An error that may come. Raises Violation for one that may not."""
        if isinstance(error, IngestError) and not isinstance(error, Bug):
            return error
        if isinstance(error, EXPECTED) or (self.truth.dropped_at_work and isinstance(error, IndexError | AssertionError)):
            return error
        if isinstance(error, Bug) and ("bypass" in self.events or self.truth.dropped_at_work):
            return error
        raise Violation("UNEXPECTED", f"{type(error).__name__}: {error}") from error

    def _guarded(self, k: int, inner: Op, action: Callable[[], None]) -> None:
        former = (self._countdown, self._inner)
        self._countdown, self._inner = (k, inner) if k > 0 else (None, ())
        try:
            action()
        except DoubledKey as doubled:
            raise Violation("I3", f"two rows of one key in {doubled}") from doubled
        finally:
            self._countdown, self._inner = former if former[0] else (None, ())

    def _ended(self, number: int) -> None:
        driver = self.drivers.pop(number, None)
        self._locks = {name: holder for name, holder in self._locks.items() if holder is not driver}

    def _kill(self, number: int) -> None:
        if number in self.drivers and self.drivers[number] not in self._working:
            self._ended(number)

    def _stop(self, number: int) -> None:
        """SIGTERM."""
        if number in self.drivers and self.drivers[number] not in self._working:
            self.drivers[number].stop = True
            self._guarded(0, (), lambda: self.advance(number, 40))

    def _rebase(self, place: int, kind: str, accept: bool, offsets: tuple[int, ...], k: int, inner: Op) -> None:
        def act() -> None:
            before, lost = operator.bindings(self, PLACES[place]), set(self.truth.quarantine_lost)
            if not self._told(PLACES[place]):
                self.truth.read_once.clear()
            try:
                operator.rebase(self, PLACES[place], kind, offsets, accept_gap=accept)
            except Crash:
                pass
            except Exception as error:
                self.error = self.judged(error)
            # One that is cut off once its checkpoint is prepared is carried out by the next, as it was planned.
            after = operator.bindings(self, PLACES[place])
            if any(each is not None and each not in before for each in after):
                self.truth.went_past(PLACES[place], lost, accept=accept)

        self._note_place(place)
        self._guarded(k, inner, act)

    def _note_place(self, place: int) -> None:
        if PLACES[place] is not HOME:
            self.events.add(ELSEWHERE)

    def _told(self, places: Places) -> bool:
        """Whether anything that a rebase of this checkpoint looks at tells of batches."""
        pairs = any(self.tables[path].newest.pairs for path, _ in (TABLES[0], TABLES[2]) if path in self.tables)
        return pairs or bool(self.files.names(f"{places.checkpoint}/offsets"))

    def _mend(self, way: int) -> None:
        """What the last error says that mends it; `way` chooses where it says two things."""
        error, self.error = self.error, None
        if error is not None:
            operator.mend(self, error, way)

    def at_work(self, place: int) -> bool:
        """Whether a driver lives on this checkpoint."""
        return any(driver.places is PLACES[place] for driver in self.drivers.values())

    def _save(self, place: int) -> None:
        """A backup of a checkpoint, as of now."""
        if tree := self.files.copy(PLACES[place].checkpoint):
            self.saved[place] = tree

    def _put_back(self, place: int, source: int) -> None:
        """The backup of a checkpoint, in place of it or of the other one."""
        if source in self.saved and not self.at_work(place):
            self.files.replace(PLACES[place].checkpoint, self.saved[source])

    def _lose(self, place: int) -> None:
        if not self.at_work(place):
            self.files.take(PLACES[place].checkpoint)

    def _tear(self, place: int, what: str, missing: bool) -> None:
        """A file of the checkpoint is gone, or empty."""
        if self.at_work(place):
            return
        root = PLACES[place].checkpoint
        log, _, back = what.partition("-")
        if log in ("offsets", "commits"):
            numbers = sorted(int(name) for name in self.files.names(f"{root}/{log}"))
            if len(numbers) <= int(back):
                return
            log = f"{log}/{numbers[-1 - int(back)]}"
        if self.files.read(f"{root}/{log}") is None:
            return
        if missing:
            self.files.remove(f"{root}/{log}")
        else:
            self.files.put(f"{root}/{log}", b"")

    def _restore(self, which: int, back: int, by_time: bool) -> None:
        table = self.tables.get(TABLES[which][0])
        if table is None or table.number - back < table.log_from or back < 1:
            return
        with self.truth.harm(which):
            table.restore(table.number - back, by_time=by_time)

    def _copy(self, which: int, back: int) -> None:
        """The table's folder is put back from a copy, as it was `back` versions ago."""
        table = self.tables.get(TABLES[which][0])
        if table is not None and not self.drivers and 1 <= back <= table.number:
            with self.truth.harm(which):
                table.put_back(table.number - back)

    def _keep(self) -> None:
        """A backup of all tables and of the checkpoint, as of now."""
        tables = (self.tables.get(path) for path, _ in TABLES)
        self.backup = [each.copy() if each is not None else None for each in tables], self.files.copy(HOME.checkpoint)

    def _bring_back(self, tables: tuple[int, ...], checkpoint: bool) -> None:
        """Some of these tables are put in place of what has become of them since, whatever that is, or also the checkpoint."""
        if self.backup is None or self.drivers:
            return
        for which in tables:
            kept, (path, _) = self.backup[0][which], TABLES[which]
            with self.truth.harm(which):
                self.tables.pop(path, None)
                if kept is not None:
                    self.tables[path] = kept.copy()
        if checkpoint and self.backup[1]:
            self.files.replace(HOME.checkpoint, self.backup[1])

    def _replace(self, which: int, overwrite: bool) -> None:
        if (table := self.tables.get(TABLES[which][0])) is None:
            return
        with self.truth.harm(which):
            table.replace(overwrite=overwrite)

    def _drop(self, which: int) -> None:
        if TABLES[which][0] in self.tables:
            with self.truth.harm(which, dropped=True):
                del self.tables[TABLES[which][0]]

    def _clean(self, which: int, keep: int) -> None:
        """Delta deletes old commits from the log, all but the last `keep`."""
        if (table := self.tables.get(TABLES[which][0])) is not None:
            table.log_from = max(table.log_from, table.number - keep)
            if any(version.commit.operation == "RESTORE" or version.metadata for version in table.versions[: table.log_from]):
                self.events.add("restore cleaned up")

    def _delete(self, id: int) -> None:
        """Somebody's DELETE of one row, on purpose."""
        table = self.tables.get(HOME.target)
        if table is None or id not in table.newest.rows:
            return
        self.truth.deleted.add(id)
        path = next(path for path, rows in table.newest.files.items() if any(row[0] == id for row in rows))
        kept = [row for row in table.newest.files[path] if row[0] != id]
        table.commit("DELETE", kept, [path])

    def _optimize(self, which: int = 0) -> None:
        if (table := self.tables.get(TABLES[which][0])) is not None and len(table.newest.files) > 1:
            table.commit("OPTIMIZE", list(table.newest.rows.values()), list(table.newest.files))

    def _recreate(self) -> None:
        partitions = len(self.topic.partitions)
        self.topic = Topic(self.new_id("T"))
        for _ in range(partitions):
            self.topic.add_partition()

    def _expire(self, partition: int, records: int) -> None:
        if partition < len(self.topic.partitions):
            end = len(self.topic.partitions[partition])
            self.topic.log_start[partition] = min(end, self.topic.log_start[partition] + records)

    def _partition(self) -> None:
        if len(self.topic.partitions) < 3:
            self.topic.add_partition()

    def _limit(self, records: int) -> None:
        """Another --max-records-per-batch from now on."""
        self.limit = records

    def _contract(self, strict: bool) -> None:
        self.strict = strict
        self.events.add("contract")

    def _clock_jump(self, hours: int) -> None:
        self._clock += timedelta(hours=hours)
