"""The whole state of the model, and one operation for everything that can happen to it.

An operation is a tuple (name, arguments). If it does not fit the state, it does nothing, so a schedule remains valid when parts of it are
removed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ingest.delta.batch_commit import FENCE, BatchId
from ingest.delta.posting import Why
from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import NO_TOPIC
from ingest.ledger.books import BEGIN, logged_lines
from ingest.ledger.ledger_line import Line, OfTable
from ingest.ledger.ledger_reader import LedgerState, Newest, written
from ingest.recovery import state_reader
from ingest.recovery.seek_offsets import Aim, Seeking
from ingest.recovery.start_state import CheckpointState, RowCount, StartState
from ingest.recovery.state_reader import Broker
from tests.model.count import PLACES, batch_commits, counted
from tests.model.delta import Log, Table
from tests.model.driver import ERRORS, Driver, Mutations
from tests.model.invariants import Invariants, Violation
from tests.model.kafka import NAMES, Record, Topic
from tests.model.writer import LEDGER, QUARANTINE, TARGET

Op = tuple[Any, ...]
# These errors may end a driver although nothing was harmed: another driver causes them, or a user's wrong arguments.
OF_TABLE: tuple[OfTable, OfTable] = ("target", "quarantine")
HARMLESS = {"FENCED", "GAP_NOT_ACCEPTED", "OFFSETS_INVALID", "CONFLICT"}


@dataclass(frozen=True)
class Setting:
    """Settings of a schedule. `spark`: a statement on the target cannot say what it adds. `topics` are those at the beginning."""

    partitions: int = 1
    limit: int = 2
    ledger_every: int = 1
    starting: Literal["earliest", "latest"] = "earliest"
    spark: bool = False
    topics: int = 1


class World:
    """The whole state.

    `topics` are those that the contract names, `former` those that were deleted, and `left` the one that left the contract. `tables` are
    target, quarantine and ledger; `drivers` are by number. `error` ended the last driver, and `refused` has the codes of all
    such errors. `limit_met`: Delta cleaned a replacement from the log, which docs/reference/guarantees.md accepts as a limit. `beneath`: a
    driver continued after a copy was put in a table's place during its run.
    """

    def __init__(self, setting: Setting = Setting(), mutations: Mutations = Mutations()) -> None:
        self.setting, self.mutations, self.limit = setting, mutations, setting.limit
        self._ids = 0
        self.topics = [Topic(name, self.new_id("T"), setting.partitions) for name in NAMES[: setting.topics]]
        self.former: list[Topic] = []
        self.left: list[Topic] = []
        self.tables: list[Table | None] = [None, None, None]
        self.checkpoints: dict[int, str] = {}
        self.drivers: dict[int, Driver] = {}
        self.error: Any = None
        self.refused: list[str] = []
        self.strict = False
        self.harmed: set[str] = set()
        self.limit_met = self.beneath = False
        self._replaced: set[int] = set()
        self.removed: set[int] = set()
        self._saved: tuple[list[Table | None], dict[int, str], dict[Any, int]] | None = None
        self.invariants = Invariants(self)

    @property
    def by_id(self) -> dict[str, Topic]:
        """All topics, also those that the contract no longer names, or that were deleted."""
        return {topic.id: topic for topic in (*self.topics, *self.left, *self.former)}

    # For drivers.

    def new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}{self._ids}"

    def look(self, logs: Sequence[Log], broker: Broker) -> Generator[None, None, StartState]:
        """The start state, as recovery/state_reader.py reads it, in its order and with its functions. Only the ledger's SQL is modelled."""
        epoch = max(self.checkpoints, default=0)
        checkpoint, ledger = CheckpointState(epoch, self.checkpoints.get(epoch, "")), self._ledger_state()
        yield
        fenced: Any = logs[QUARANTINE].state()
        target = state_reader.read_target(logs[TARGET], logs[TARGET].state(), PLACES, ledger)  # type: ignore[arg-type]
        yield
        quarantine = state_reader.read_quarantine(logs[QUARANTINE], logs[QUARANTINE].state(), PLACES, target.newest)  # type: ignore[arg-type]
        quarantine = replace(quarantine, epoch=state_reader.epoch_of(fenced, PLACES))
        target = replace(target, copy=state_reader.copy_of(logs[TARGET], target, quarantine))  # type: ignore[arg-type]
        start_state = StartState(PLACES.name, target, quarantine, ledger, checkpoint, broker())
        if not start_state.needs_count:
            return start_state
        account = counted(self.tables)
        missing, unknown = (
            [*map(str, (*each[0], *each[1]))]
            for each in zip(*((h.wrong, h.strays) for h in (account.target, account.quarantine)), strict=True)
        )
        return replace(start_state, count=RowCount(tuple(missing), tuple(unknown)))

    def _ledger_state(self) -> LedgerState:
        table = self.tables[LEDGER]
        if table is None or not table.newest.rows:
            return LedgerState()
        lines: list[Line] = [*table.newest.rows]
        log: Any = Log(self.tables, LEDGER)
        placed = [line for line in lines if line.posting.why in ("batch", *BEGIN) and line.posting.range is not None]
        if not placed:
            return LedgerState()
        newest = max(line.batch_id for line in placed)
        of_newest = [line for line in placed if line.batch_id == newest]
        ends = {at.of: at.end for line in of_newest if (at := line.posting.range) is not None}
        reached: dict[Partition, int] = {}
        for line in placed:
            if line.posting.why == "batch" and (at := line.posting.range) is not None:
                reached[at.of] = max(at.end, reached.get(at.of, 0))
        of_epochs = sorted((line for line in lines if line.id.epoch > 0), key=lambda line: line.id.epoch)
        topics = {line.posting.key.source: line.topic for line in of_epochs}
        sources = tuple(topics.get(number, NO_TOPIC) for number in range(1 + max(topics)))
        statement = max(line.id for line in lines if line.of_table == "target")
        newest_batch = Newest(newest, sources, ends, None, of_newest[0].version)
        return LedgerState(newest_batch, statement, reached, written(log, PLACES.name)[1])

    # For the invariants.

    def evidence(self) -> bool:
        """Whether anything is left that shows that batches were committed."""
        target, quarantine, ledger = self.tables
        found = bool(self.checkpoints) or any(batch_commits(target)) or (target is not None and bool(target.newest.rows))
        found |= target is not None and BatchId.of(max(target.newest.txn, 0)).number != FENCE
        found |= ledger is not None and any(line.posting.why == "batch" for line in ledger.newest.rows)
        return found or (quarantine is not None and bool(quarantine.newest.rows))

    def blind(self) -> bool:
        """Whether ledger and log may lack batches that verify needs."""
        return "ledger" in self.harmed and bool(self.harmed & {"clean", "target gone"})

    # Operations.

    def apply(self, op: Op) -> None:
        """Apply one operation. Raises Violation."""
        getattr(self, f"_{op[0]}")(*op[1:])

    def _produce(self, partition: int, records: tuple[tuple[int, int, str] | None, ...], topic: int = 0) -> None:
        if topic < len(self.topics) and partition < len(self.topics[topic].partitions):
            self.topics[topic].partitions[partition].extend(None if each is None else Record(*each) for each in records)

    def _go(self, number: int, steps: int) -> None:
        """Continue or start a driver, for this many steps. An idle driver stops early."""
        driver = self.drivers.get(number) or self.drivers.setdefault(number, Driver(self))
        for other in self.drivers.values():
            other.disturbed |= other is not driver
        self.beneath |= driver.beneath
        try:
            for _ in range(steps):
                next(driver.steps)
                if driver.idle and steps > 1:
                    break
        except StopIteration:
            del self.drivers[number]
        except ERRORS as error:
            self._ended(number, error)

    def _until(self, number: int, place: str) -> None:
        """Continue a driver until it is at this place: a statement that is next, or at work."""
        for _ in range(99):
            self._go(number, 1)
            if number not in self.drivers or self.drivers[number].place == place:
                return

    def _ended(self, number: int, error: Any) -> None:
        self.error = error
        self.refused.append(error.code)
        if not self.harmed and not self.drivers[number].disturbed and error.code not in HARMLESS:
            raise Violation("I6", f"nothing was harmed, but a start was refused: {error}")
        del self.drivers[number]

    def _seek(self, number: int, kind: Any, offsets: tuple[int, ...] = (), accept: bool = False) -> None:
        """Start a seek; `go` continues it."""
        if number not in self.drivers:
            self.drivers[number] = Driver(
                self, Seeking(Aim(kind, tuple(((NAMES[0], p), offset) for p, offset in enumerate(offsets))), accept, "")
            )

    def _kill(self, number: int) -> None:
        self.drivers.pop(number, None)

    def _stop(self, number: int) -> None:
        """Stop a run gracefully: it posts what is left, and completes the ledger."""
        driver = self.drivers.pop(number, None)
        if driver is not None and driver.seeking is None and driver.at:
            try:
                for _ in driver.finish():
                    pass
            except ERRORS as error:
                self.error = error

    def _strict(self, strict: bool) -> None:
        self.strict = strict

    def _partition(self, topic: int = 0) -> None:
        if topic < len(self.topics):
            self.topics[topic].add_partition()

    def _join(self) -> None:
        """The contract names another topic: a new one, or the one that has left. The next start reads it."""
        if len(self.topics) < len(NAMES):
            name = NAMES[len(self.topics)]
            self.topics.append(self.left.pop() if self.left else Topic(name, self.new_id("T"), self.setting.partitions))

    def _leave(self) -> None:
        """The contract no longer names the other topic."""
        if len(self.topics) > 1:
            self.left.append(self.topics.pop())
            self.harmed.add("leave")

    def _expire(self, partition: int, offsets: int, topic: int = 0) -> None:
        if topic < len(self.topics) and partition < len(self.topics[topic].partitions):
            log, log_start = self.topics[topic].partitions[partition], self.topics[topic].log_start
            log_start[partition] = min(log_start[partition] + offsets, len(log))
            self.harmed.add("expire")

    def _recreate(self, topic: int = 0) -> None:
        if topic < len(self.topics):
            before = self.topics[topic]
            before.gone = True
            self.former.append(before)
            self.topics[topic] = Topic(before.name, self.new_id("T"), len(before.partitions))
            self.harmed.add("recreate")

    def _delete(self, nth: int) -> None:
        """A user deletes a row."""
        table = self.tables[TARGET]
        if table is not None and table.newest.rows:
            id = sorted(table.newest.rows)[nth % len(table.newest.rows)]
            table.delete(id)
            self.invariants.deleted.add(id)

    def _erase(self, nth: int) -> None:
        """An erasure of a row, under the run's lock."""
        table = self.tables[TARGET]
        if table is not None and table.newest.rows and not self.drivers:
            id = sorted(table.newest.rows)[nth % len(table.newest.rows)]
            self._remove(TARGET, id, "erasure")
            self.invariants.deleted.add(id)

    def _retire(self, nth: int) -> None:
        """Retention of a record that is a row now, and that the ledger has."""
        table, last = self.tables[QUARANTINE], self._ledger_state().newest
        if table is not None and last is not None and not self.drivers:
            settled = sorted(at for at, row in table.newest.rows.items() if row[2] == "replayed" and BatchId(*row[:2]) <= last.id)
            if settled:
                self._remove(QUARANTINE, settled[nth % len(settled)], "retention")

    def _remove(self, which: int, key: Any, why: Why) -> None:
        table, mutations = self.tables[which], self.mutations
        assert table is not None
        table.remove(key, why, self.new_id("w"), posted=not mutations.removed_unposted, removed=not mutations.posted_unremoved)
        self.removed.add(which)

    def _harm(self, which: int, how: str) -> Table | None:
        table = self.tables[which]
        if table is not None:
            self.harmed |= {how, ("target", "quarantine", "ledger")[which]}
            self._replaced.add(which)
        return table

    def _restore(self, which: int, back: int) -> None:
        """RESTORE to `back` versions ago."""
        table = self.tables[which]
        if table is not None and 0 < back < len(table.versions) - table.log_from:
            self._harm(which, "restore")
            table.restore(back)

    def _overwrite(self, which: int, keep: int) -> None:
        if (table := self._harm(which, "overwrite")) is not None:
            table.overwrite(keep)

    def _replace(self, which: int) -> None:
        if (table := self._harm(which, "replace")) is not None:
            table.replace(self.new_id("t"))

    def _drop(self, which: int) -> None:
        if (table := self._harm(which, "drop")) is not None:
            self._forgotten(which, table)
            self.tables[which] = None
            self._gone(which)

    def _copy(self, which: int, back: int) -> None:
        """Restore the table's folder from a copy, as it was `back` versions ago."""
        table = self.tables[which]
        if table is not None and 0 < back < len(table.versions):
            self._harm(which, "copy")
            self._forgotten(which, table)
            self.tables[which] = table.copy(back)
            self._gone(which)

    def _gone(self, which: int) -> None:
        if which == TARGET:
            self.harmed.add("target gone")
        for driver in self.drivers.values():
            driver.beneath = True
        self.invariants.put_back()

    def _save(self) -> None:
        """Back up tables and checkpoints."""
        self._saved = (
            [table.copy() if table is not None else None for table in self.tables],
            dict(self.checkpoints),
            dict(self.invariants.put),
        )

    def _put_back(self, *which: int) -> None:
        """Replace some tables (3: the checkpoints) with their state in the backup."""
        for each in which if self._saved is not None else ():
            assert self._saved is not None
            if each == 3:
                self.checkpoints = dict(self._saved[1])
                continue
            self.harmed |= {"copy", ("target", "quarantine", "ledger")[each]}
            table = self._saved[0][each]
            self.tables[each] = table.copy() if table is not None else None
            self._replaced.add(each)
            self._gone(each)
        if self._saved is not None and set(which) == {0, 1, 2, 3}:
            self.invariants.put = dict(self._saved[2])  # nothing shows later batches any more
        self.invariants.forget()

    def _clean(self, which: int) -> None:
        """Let Delta delete old commits from the log."""
        table = self.tables[which]
        if table is not None and table.log_from < len(table.versions) - 1:
            self.harmed.add("clean")
            self.limit_met |= which in self._replaced
            self._forgotten(which, table)
            table.clean()

    def _forgotten(self, which: int, table: Table) -> None:
        """Before a log is lost: record whether the ledger lacks lines of it, which are unknown from then on."""
        ledger, log = self.tables[LEDGER], Log(self.tables, which)
        kept = ledger.newest.rows if ledger is not None else {}
        if which != LEDGER and any(
            line not in kept
            for line in logged_lines(OF_TABLE[which], log, PLACES.name, -1, log.newest())  # type: ignore[arg-type]
        ):
            self.harmed.add("ledger")

    def _optimize(self, which: int) -> None:
        if (table := self.tables[which]) is not None:
            table.optimize()

    def _lose(self) -> None:
        """Delete the checkpoints folder."""
        self.checkpoints = {}
        self.invariants.forget()
