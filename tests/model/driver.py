"""A driver: one start of `ingest run` or `ingest seek` as a coroutine, in the order of recovery/epoch.py and batch/batch.py.

It yields between any two of its effects. At such a point it can be killed, or continue at any later moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ingest.delta.batch_commit import (
    FENCE,
    FIRST_BATCH,
    SEEK,
    Batch,
    BatchCommit,
    BatchId,
    Fence,
    Mark,
    RollBack,
    Seek,
    Snapshots,
    Start,
    State,
)
from ingest.delta.posting import NOTHING, Key, Posting, Sums
from ingest.kafka.offsets import OffsetRange, Partition
from ingest.kafka.topic_state import TopicState
from ingest.ledger.ledger_line import lines_of
from ingest.recovery import epoch
from ingest.recovery.decision import Create, Refuse, decide
from ingest.recovery.epoch import EpochOffsets
from ingest.recovery.look_back import LookBack
from ingest.recovery.numbering import Numbered
from ingest.recovery.roll_back import roll_back
from ingest.recovery.seek_offsets import Seeking, plan, topics_of
from ingest.recovery.start_state import StartState
from ingest.runtime.errors import IngestError
from tests.model.count import PLACES, added_by, batch_commits, coverage, logs
from tests.model.delta import NAME, Table, Version, summed
from tests.model.kafka import Record, Topic
from tests.model.writer import LEDGER, QUARANTINE, TARGET, Change, Doing, Steps, Stopped, Writer

if TYPE_CHECKING:
    from tests.model.world import World

ROUNDS_MAX = 5
# Source, partition and offset.
Position = tuple[int, int, int]


@dataclass(frozen=True)
class Mutations:
    """Bugs of a driver. Bugs of the pure functions are patched into the functions (tests/model/mutants.py)."""

    quarantine_unfenced: bool = False
    writer_ignored: bool = False
    looks_once: bool = False
    never_looks_back: bool = False
    no_roll_back: bool = False
    ledger_first: bool = False
    quarantine_last: bool = False
    no_replayed: bool = False
    no_anti_join: bool = False
    epoch_ignored: bool = False
    passed_over: bool = False
    unsaid: bool = False
    told_twice: bool = False
    removed_unposted: bool = False
    posted_unremoved: bool = False
    source_ignored: bool = False


class Driver(Writer):
    """One driver.

    `steps` is the coroutine. `at` has the next offset of each partition, and `topics` are those that it reads, by number. `unposted` is
    what its last statement on the target could not post. `disturbed`: other drivers ran since it last read the state. `beneath`: a copy was
    put in a table's place since then.
    """

    def __init__(self, world: World, seeking: Seeking | None = None) -> None:
        super().__init__(world)
        self.seeking = seeking
        self.topics: dict[int, Topic] = {}
        self.at: dict[Partition, int] = {}
        self.read_before: Mapping[Partition, int] = {}
        self.number = FIRST_BATCH - 1
        self.behind = 0
        self.unposted: list[Posting] = []
        self.idle = self.disturbed = self.beneath = False
        self.steps = self._work()

    def _work(self) -> Steps:
        for _ in range(ROUNDS_MAX):
            state = yield from self._look()
            if self.seeking is not None or not isinstance(decide(state, self.world.setting.starting), Create):
                self._offsets(state)
            if (yield from self._make_tables(state)):
                state = yield from self._look()
            yield
            if (yield from self._fenced(state)):
                break
        else:
            raise Stopped("FENCED", f"another start took the epoch {ROUNDS_MAX} times")
        if self.seeking is not None:
            yield from self.finish()
            return
        while True:
            yield from self._batch()

    def finish(self) -> Steps:
        """Post what is left, and complete the ledger."""
        state: Any = self.logs[TARGET].state()
        if self.unposted and state is not None:
            last, key = BatchId.of(max([0, *state.transactions.values()])), self.unposted[0].key
            if self.mutations.told_twice or last == max(BatchId(self.epoch, FENCE), BatchId(key.epoch, key.batch)):
                batch_commit = self.batch_commit(State(), last.number + 1, self._again(), tuple(self.unposted))
                yield from self.commit(TARGET, partial(_same, batch_commit), _nothing, reads=False)
        yield from self.project()

    # Opening an epoch.

    def _look(self) -> Doing:
        self.disturbed = self.beneath = False
        return (yield from self.world.look(self.logs, self._ask))

    def _ask(self) -> tuple[TopicState, ...]:
        return tuple(topic.state() for topic in self.world.topics)

    def _numbered(self, state: StartState) -> Numbered:
        assert state.topics is not None
        return state.topics if self.seeking is None else topics_of(state, self.seeking.aim)

    def _take(self, numbered: Numbered) -> None:
        self.sources = numbered.sources
        self.topics = {number: self.world.by_id[state.topic.id] for number, state in numbered.states.items()}

    def _make_tables(self, state: Any) -> Doing:
        if None not in (state.target.snapshot, state.quarantine.snapshot, self.world.tables[LEDGER]):
            return False
        for which in (TARGET, QUARANTINE, LEDGER):
            if self.world.tables[which] is None:
                self.world.tables[which] = Table(self.world.new_id("t"))
                yield
        return True

    def _offsets(self, state: StartState) -> EpochOffsets:
        if self.seeking is not None:
            whole = coverage(self.world.tables, topics_of(state, self.seeking.aim).states.keys())
            sought = plan(state, self.seeking.aim, whole, accept_gap=self.seeking.accept_gap)
            return EpochOffsets(sought.starts, "seek" if state.was_read else "first", "", sought)
        decision = decide(state, self.world.setting.starting)
        if isinstance(decision, Refuse):
            raise decision.error
        if isinstance(decision, Create):
            raise Stopped("TABLE_GONE", "the new table is gone")
        return EpochOffsets(decision.offsets, "first" if decision.first else None, joins=decision.joins)

    def _fenced(self, state: Any) -> Doing:
        """Fence, read the state again and start the epoch. False if another writer has this epoch or a later one."""
        self.epoch = state.next_epoch
        self._take(self._numbered(state))
        offsets = self._offsets(state) if self.mutations.looks_once else None
        fences = (TARGET,) if self.mutations.quarantine_unfenced else (TARGET, QUARANTINE)
        for which in fences:
            if state.target.snapshot is None or state.quarantine.snapshot is None:
                return False
            batch_commit = self.batch_commit(Fence(), FENCE, Snapshots(state.target.snapshot, state.quarantine.snapshot))
            if (yield from self.try_commit(which, partial(_same, batch_commit), _nothing, reads=False)) is None:
                return False
            yield
        if not self.mutations.looks_once:
            state = yield from self._look()
            fenced = state.target.epoch == self.epoch and (self.mutations.quarantine_unfenced or state.quarantine.epoch == self.epoch)
            if not fenced or state.next_epoch != self.epoch + 1 or self._numbered(state).sources != self.sources:
                return False
            self._take(self._numbered(state))
        if state.target.snapshot is None or state.quarantine.snapshot is None:
            raise Stopped("TABLE_GONE", "the new table is gone")
        beginning = offsets or self._offsets(state)
        self.world.invariants.opened(self)
        snapshots = Snapshots(state.target.snapshot, state.quarantine.snapshot)
        self.look_back = LookBack(NAME, self.logs[TARGET], self.logs[QUARANTINE], snapshots)  # type: ignore[arg-type]
        yield from self._finish_replay(state)
        undone = None if self.mutations.no_roll_back else roll_back(state, self.epoch, self._numbered(state))
        if undone is not None:
            yield from self._delete(undone)
        newest = state.target.newest
        self.unposted = added_by(self.world.tables, newest.version if newest is not None else None, state.target.opened)
        if beginning.why is not None or beginning.joins:
            case = Seek("") if beginning.why == "seek" else Start("")
            postings = (*beginning.postings(self.epoch, {}), *self.unposted)
            batch_commit = self.batch_commit(case, SEEK, self._again(), postings)
            if not self.fenced_off(TARGET, batch_commit):  # otherwise the commit is refused
                self.world.invariants.seeking(batch_commit, self)
            yield from self.commit(TARGET, partial(_same, batch_commit), _nothing, reads=False)
            self.unposted = []
            yield
        seen = self._again()
        self.world.checkpoints[self.epoch] = seen.target.table_id
        yield
        opening: Any = SimpleNamespace(logs=logs(self.world.tables), places=PLACES)
        self.read_before = epoch._Opening._read_before(opening, state)
        self.at = dict(beginning.starts)
        return True

    def _delete(self, undone: Any) -> Steps:
        def change(rows: Mapping[Any, Any]) -> Change | None:
            kept = {at: row for at, row in rows.items() if not undone.takes(BatchId(row[0], row[1]), at[:2], at[2])}
            return Change(kept, "DELETE") if len(kept) < len(rows) else None

        batch_commit = self.batch_commit(RollBack(), SEEK, self._again())
        if (yield from self.try_commit(QUARANTINE, lambda: batch_commit, change)) is None and self.fenced_off(QUARANTINE, batch_commit):
            raise Stopped("FENCED", "the roll-back was not executed")
        yield

    def _again(self) -> Snapshots:
        if self.mutations.never_looks_back:
            now = [log.state() for log in self.logs[:LEDGER]]
            if None not in now:
                self.look_back.snapshots = Snapshots(*(each.snapshot for each in now))
            return self.look_back.snapshots
        return self.look_back.again()

    # A batch.

    def _batch(self) -> Steps:
        topics, world = self.topics, self.world
        self._same()
        bounds = {(n, p): end for n, topic in topics.items() for p, (_, end) in topic.bounds().items()}
        ends = {of: min(self.at.get(of, 0) + world.limit, end) for of, end in bounds.items()}
        ranges = tuple(OffsetRange(of[1], self.at.get(of, 0), end, source=of[0]) for of, end in sorted(ends.items()))
        if not any(each.start < each.end for each in ranges):
            self.idle = True
            yield
            return
        self.idle = False
        self.number += 1
        yield
        self._again()
        try:
            records = [(*r.of, *each) for r in ranges for each in topics[r.source].read(r.partition, r.start, r.end)]
        except LookupError as error:
            raise Stopped("DATA_LOSS", str(error)) from error
        again = any(r.start < r.end and r.start < self.read_before.get(r.of, 0) for r in ranges)
        winners, wrong = _ranked(records, strict=world.strict)
        if self.mutations.passed_over and len(winners) > 1:
            winners.popitem()
        failed, table = wrong, world.tables[TARGET]
        if again and table is not None and not self.mutations.no_anti_join:
            held = {row[:3] for row in table.newest.rows.values()}
            failed = [at for at in failed if at not in held]
        yield
        self._same()
        stored: Mapping[Key, Sums] = {}
        if failed and not self.mutations.quarantine_last:
            stored = yield from self._quarantine(failed, again=again)

        def postings(added: Mapping[Key, Sums] | None) -> tuple[Posting, ...]:
            found = []
            for each in ranges:
                key = Key(self.epoch, self.number, *each.of)
                read, offered, refused = (sum(at[:2] == each.of for at in places) for places in (records, winners.values(), wrong))
                kept, target = stored.get(key, NOTHING), None if added is None else added.get(key, NOTHING)
                duplicate = 0 if self.mutations.passed_over else read - offered - refused
                present = None if target is None else read - target.rows - kept.rows - duplicate
                found.append(Posting(key, "batch", each, read, target, kept, present, duplicate))
            return tuple(found)

        def change(rows: Mapping[Any, Any]) -> Change:
            new = {id: (*at, self.epoch, self.number, topics[at[0]].id) for id, at in winners.items() if id not in rows}
            told = postings(None if world.setting.spark else summed(new))
            return Change({**rows, **new} if new else rows, "MERGE", told, {"added": tuple(new)})

        if self.mutations.ledger_first and table is not None:
            yield from self._lead(change(table.newest.rows).postings)
        version = yield from self.commit(
            TARGET, lambda: self.batch_commit(Batch(), self.number, self._again(), tuple(self.unposted)), change
        )
        self._again()
        self.at = ends
        yield
        if failed and self.mutations.quarantine_last:
            yield from self._quarantine(failed, again=again)
        if again:
            yield from self._replay(version.batch_commit)
        self.unposted = [] if self.mutations.unsaid else added_by(world.tables, version.version, version.batch_commit.opened)
        self.behind += 1
        if self.behind >= world.setting.ledger_every:
            self.behind = 0
            yield from self.project()

    def _lead(self, postings: tuple[Posting, ...]) -> Steps:
        batch_commit = self.batch_commit(Batch(), self.number, self.look_back.snapshots, postings)
        version: Any = Version(self.logs[TARGET].newest() + 1, "", {}, 0)
        lines = list(lines_of("target", version, batch_commit))
        yield from self.unfenced(
            LEDGER, replace(batch_commit, case=Mark()), lambda there: Change({**there, **dict.fromkeys(lines)}, "WRITE")
        )
        yield

    def _same(self) -> None:
        if any(topic.gone for topic in self.topics.values()):
            raise Stopped("TOPIC_RECREATED", "during the run")

    def _quarantine(self, failed: list[Position], *, again: bool) -> Doing:
        """Commit records to the quarantine; returns the sums of those that it did not contain before."""

        def change(rows: Mapping[Any, Any]) -> Change:
            known = {(at[0], *of[1:]) for of in rows for at in failed} if self.mutations.source_ignored else rows
            new = {at: (self.epoch, self.number, "open", self.topics[at[0]].id) for at in failed if at not in known}
            opened = {at: (*rows[at][:2], "open", rows[at][3]) for at in failed if again and at in rows and rows[at][2] == "replayed"}
            return Change({**rows, **opened, **new} if new or opened else rows)

        version = yield from self.commit(QUARANTINE, lambda: self.batch_commit(Batch(), self.number, self._again()), change)
        self._again()
        yield
        return version.sums()

    def _finish_replay(self, state: StartState) -> Steps:
        """Finish the replay of the newest batch, which a crash after its commit may have prevented."""
        newest = state.target.newest
        if newest is None or newest.snapshots is None:
            return
        for _, batch_commit in batch_commits(self.world.tables[TARGET]):
            if batch_commit.id == newest.id and isinstance(batch_commit.case, Batch):
                yield from self._replay(batch_commit)

    def _replay(self, batch_commit: BatchCommit) -> Steps:
        """Mark quarantined records that a batch turned into rows as `replayed`, in a statement without a transaction id."""
        if self.mutations.no_replayed:
            return

        def change(rows: Mapping[Any, Any]) -> Change | None:
            target = self.world.tables[TARGET]
            made = (
                {r[:3] for r in target.newest.rows.values() if (r[3], r[4]) == (batch_commit.id.epoch, batch_commit.id.number)}
                if target
                else set()
            )
            both = {at: (*row[:2], "replayed", row[3]) for at, row in rows.items() if at in made and row[2] == "open"}
            return Change({**rows, **both}) if both else None

        yield from self.unfenced(QUARANTINE, replace(batch_commit, case=Mark(), postings=()), change)


def _same(batch_commit: BatchCommit) -> BatchCommit:
    return batch_commit


def _nothing(rows: Mapping[Any, Any]) -> Change:
    return Change(rows, "WRITE")


def _ranked(records: list[tuple[int, int, int, Record]], *, strict: bool) -> tuple[dict[int, Position], list[Position]]:
    """The lowest position of each id, and positions of records that are no row: refused by the contract, or with another payload."""
    winners: dict[int, Position] = {}
    payloads: dict[int, int] = {}
    failed = []
    for *place, (id, payload, kind) in records:  # in the order of topics, partitions and offsets
        at: Any = tuple(place)
        if kind == "poison" or (strict and kind == "odd"):
            failed.append(at)
        elif id not in winners:
            winners[id], payloads[id] = at, payload
        elif payload != payloads[id]:
            failed.append(at)
    return winners, failed


ERRORS = (IngestError, Stopped)
