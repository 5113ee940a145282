"""Opening an epoch: the one operation behind a first start, every later start and a seek (I8, docs/reference/guarantees.md).

1. Read the start state and decide. A start that is refused fences nobody.
2. Fence the target with (epoch, 0).
3. Fence the quarantine.
4. Read the state again. No other writer can commit any more, so this state decides.
5. Set records that became rows to `replayed`, and roll back the quarantined records of an uncommitted batch.
6. Commit the offsets of a first start or a seek. A replay commits rows with them.
7. Create the folder of the new checkpoint.

After a crash at any step the next start takes a higher epoch and repeats all steps.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from pyspark.sql import SparkSession

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.batch_commit import FENCE, SEEK, BatchCommit, BatchId, Case, Fence, Replay, RollBack, Seek, Snapshots, Start, State
from ingest.delta.commit import Commit
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import Unreadable, asked
from ingest.delta.posting import Key, Posting, Why
from ingest.delta.stored_rows import hashed_ids
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.kafka.offsets import OffsetRange, Partition, Position, empty_ranges
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import added_by
from ingest.ledger.projection import Ledger, unwritten
from ingest.recovery import refusals
from ingest.recovery.decision import Create, Refuse, decide
from ingest.recovery.look_back import LookBack
from ingest.recovery.numbering import Numbered
from ingest.recovery.replay import replay, unfinished
from ingest.recovery.roll_back import roll_back
from ingest.recovery.seek_offsets import Seeking, SeekPlan, counted, topics_of
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import EPOCH_FILE, Broker, checkpoints, read_start_state
from ingest.runtime import crash_points
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

# If two starts want the same epoch, the later one tries again. More rounds than this mean that starts come faster than they finish.
ROUNDS_MAX = 5
# The checkpoints of the newest epochs are kept for inspection.
CHECKPOINTS_KEPT = 3


@dataclass(frozen=True)
class Writer:
    """One start of one process: the identity in its commits. `id` is a UUID, `sources` are the table's topics by number."""

    pipeline: str
    table: str
    epoch: int
    id: str
    sources: tuple[TopicId, ...]
    contract_hash: str

    def batch_commit(self, case: Case, number: int, snapshots: Snapshots, postings: tuple[Posting, ...] = ()) -> BatchCommit:
        """A BatchCommit of this writer."""
        id = BatchId(self.epoch, number)
        return BatchCommit(case, self.pipeline, self.table, id, self.id, snapshots, self.contract_hash, self.sources, postings)


@dataclass(frozen=True)
class Epoch:
    """An open epoch: its writer and the offsets where it starts. `read_to` are the positions where the table ends.

    `read_before` is the highest offset that earlier batches have reached. `checkpoint` is a folder, `seek_plan` that of a seek. `healed`
    describes repairs, as notes for the user. `unposted` is what earlier statements could not post: the next commit on the target has it.
    """

    writer: Writer
    starts: Mapping[Partition, int]
    read_to: Mapping[Partition, Position]
    read_before: Mapping[Partition, int]
    checkpoint: str
    look_back: LookBack
    ledger: Ledger
    seek_plan: SeekPlan | None = None
    healed: tuple[str, ...] = ()
    unposted: list[Posting] = field(default_factory=list)

    @property
    def topics(self) -> dict[int, str]:
        """The names of the topics that it reads, by number."""
        return {number: self.writer.sources[number].name for number in sorted({number for number, _ in self.starts})}

    @property
    def fence(self) -> BatchCommit:
        """The BatchCommit of its fence."""
        return self.writer.batch_commit(Fence(), FENCE, self.look_back.snapshots)

    def finish(self, session: SparkSession | None = None) -> None:
        """Post what is left, and complete the ledger. Raises RunStopped FENCED, and the errors of `LookBack.again`."""
        log, statements = self.ledger.logs.target, self.ledger.writer
        if self.unposted and (state := log.state()) is not None:
            last, key = BatchId.of(state.transactions[self.fence.app_id]), self.unposted[0].key
            # A batch that failed after its commit has posted it already.
            if last == max(self.fence.id, BatchId(key.epoch, key.batch)):
                statements.post(log, self.writer.batch_commit(State(), last.number + 1, self.look_back.again(), tuple(self.unposted)))
            self.unposted.clear()
        self.ledger.append(session)


@dataclass(frozen=True)
class EpochOffsets:
    """The offsets where an epoch starts. `why` is `first` or `seek` if they are to be committed, and None for a later start.

    Of a later start, those of topics that join are to be committed with all others, as `first`.
    """

    starts: Mapping[Partition, int]
    why: Literal["first", "seek"] | None = None
    reason: str = ""
    seek_plan: SeekPlan | None = None
    joins: frozenset[int] = frozenset()

    def postings(self, epoch: int, read_to: Mapping[Partition, Position]) -> tuple[Posting, ...]:
        """The postings of these offsets, and of what a seek leaves out and writes off."""

        def at(why: Why, each: OffsetRange) -> Posting:
            return Posting(Key(epoch, SEEK, *each.of), why, each)

        begin = empty_ranges(self.starts, read_to)
        found = [at("first" if each.source in self.joins else self.why or "start", each) for each in begin]
        if self.seek_plan is not None:
            found += [*(at("gap", gap) for gap in self.seek_plan.gaps), *self.seek_plan.written_off]
        return tuple(found)


Statement = Callable[[BatchCommit, LookBack], Commit | None]
"""A statement of an epoch in place of its first batch, such as a replay: adds rows to the target in one commit; None if there are none.

It gets the BatchCommit of a replay at the table's end, and the look back. It completes the case and the postings.
"""


def open_epoch(
    session: SparkSession | None,
    contract: Contract,
    places: Places,
    broker: Broker,
    seeking: Seeking | None = None,
    statement: Statement | None = None,
    floor: int = 1,
    writer: TableWriter | None = None,
    completes: int | None = None,
    recorded: tuple[TopicId, ...] = (),
) -> Epoch:
    """Open the next epoch of a table, `floor` or greater, at the table's end or where `seeking` aims.

    `statement` then adds rows to the target. `writer` makes the statements (default: Spark, through `session`). `completes` is the first
    epoch of a rebuild whose swap may have been cut off behind the quarantine: then that is no refusal. A new table numbers its topics as
    those of `recorded`.

    Raises the refusals of `decide` and `plan`, Refused CONTRACT_CHANGED, and RunStopped FENCED if other starts keep taking the epoch.
    """
    writer = writer or SparkWriter(_needed(session))
    opening = _Opening(session, contract, places, broker, seeking, statement, floor, Logs.of(places, session), writer, completes, recorded)
    for _ in range(ROUNDS_MAX):
        if (opened := opening.once()) is not None:
            return opened
    raise RunStopped(
        "FENCED",
        f"another start of {places.name} took the epoch first, {ROUNDS_MAX} times in a row.",
        expected="one run for a table at a time.",
        remedy="stop the other runs. A scheduler must not start runs that overlap.",
    )


def _needed(session: SparkSession | None) -> SparkSession:
    assert session is not None, "Spark's writer needs a session"
    return session


def refuse_start(session: SparkSession, contract: Contract, places: Places, broker: Broker) -> StartState:
    """The start state of a table, if a start would be accepted. Writes nothing. Raises the refusals of `open_epoch`."""
    opening = _Opening(session, contract, places, broker, None, None, 1, Logs.of(places, session), SparkWriter(session))
    state = opening.read_state()
    opening.refuse(state)
    return state


@dataclass
class _Opening:
    """The inputs that the steps of an opening share."""

    session: SparkSession | None
    contract: Contract
    places: Places
    broker: Broker
    seeking: Seeking | None
    statement: Statement | None
    floor: int
    logs: Logs
    statements: TableWriter
    completes: int | None = None
    recorded: tuple[TopicId, ...] = ()

    def once(self) -> Epoch | None:
        """Open the epoch; None if another writer has taken it or a later one."""
        # 1. Read the start state and decide.
        state = self.read_state()
        self.refuse(state)
        if None in (state.target.snapshot, state.quarantine.snapshot, state.ledger_snapshot):
            self.statements.create_tables(self.contract, self.places)
            state = self.read_state()
        crash_points.at("start_tables", 0)

        # 2. Fence the target. 3. Fence the quarantine.
        epoch, sources = max(state.next_epoch, self.floor), self._topics(state).sources
        writer = Writer(self.places.pipeline, self.places.table, epoch, str(uuid.uuid4()), sources, self.contract.hash)
        for log, point in ((self.logs.target, "start_target_fenced"), (self.logs.quarantine, "start_fenced")):
            if self.statements.fence(log, writer.batch_commit(Fence(), FENCE, _snapshots(state))) is None:
                return None
            crash_points.at(point, 0)

        # 4. Read the state again: no other writer can commit any more.
        state = self.read_state()
        fenced = state.target.epoch == state.quarantine.epoch == writer.epoch  # false if a copy replaced one of them since
        if not fenced or state.next_epoch != writer.epoch + 1 or self._topics(state).sources != writer.sources:
            return None
        begin = self._begin(state)
        look_back = LookBack(self.places.name, self.logs.target, self.logs.quarantine, _snapshots(state), self.statements.look)

        # 5. Finish what a crash interrupted: set records that became rows to `replayed`, and roll back an uncommitted batch.
        find_unfinished = partial(unfinished, places=self.places, log=self.logs.target, newest=state.target.newest)
        if (batch_commit := asked(self.places.lake, self.session, find_unfinished)) is not None:
            replay(self.statements, self.places, batch_commit)
        healed = list(_lost_checkpoints(state, writer))
        if (undone := roll_back(state, writer.epoch, self._topics(state))) is not None:
            commit = self.statements.delete(
                self.logs.quarantine, writer.batch_commit(RollBack(), SEEK, look_back.again()), undone.condition
            )
            number = commit.deleted_rows if commit is not None else 0
            healed += [f"{number} quarantined records of an uncommitted batch were rolled back; they are read again"] if number else []
            crash_points.at("start_rolled_back", 0)

        # 6. Commit the offsets of a first start or a seek, with what an earlier statement could not post.
        newest = state.target.newest
        unposted = self._completed(newest.version if newest is not None else None, state.target.opened)
        offsets = begin.postings(writer.epoch, state.read_to)
        if begin.why is not None or (begin.joins and self.statement is None):  # a statement commits the offsets with its rows
            case = Seek(begin.reason) if begin.why == "seek" else Start(begin.reason)
            seek = writer.batch_commit(case, SEEK, look_back.again(), (*offsets, *unposted))
            self.statements.post(self.logs.target, seek)
            unposted.clear()
            crash_points.at("start_offsets", 0)
        look_back.again()
        if self.statement is not None:
            at_end = writer.batch_commit(Replay(""), SEEK, look_back.snapshots, (*offsets, *unposted))
            if (commit := self.statement(at_end, look_back)) is not None and commit.batch_commit is not None:
                unposted = self._completed(commit.version, commit.batch_commit.opened)
            look_back.again()

        # 7. Create the folder of the new checkpoint.
        checkpoint = self._make_checkpoint(writer, look_back.snapshots.target.table_id)
        crash_points.at("start_checkpoint", 0)
        ledger = Ledger(self.places, self.logs, self.statements)
        starts, seek_plan = begin.starts, begin.seek_plan
        reached = self._read_before(state)
        return Epoch(writer, starts, state.read_to, reached, checkpoint, look_back, ledger, seek_plan, tuple(healed), unposted)

    def read_state(self) -> StartState:
        """Read the start state with the broker's."""
        state = replace(read_start_state(self.session, self.places, self.logs, self.broker), recorded=self.recorded)
        replaced = state.quarantine.replaced
        if self.completes is None or replaced is None or replaced.rebuild != self.completes:
            return state
        return replace(state, quarantine=replace(state.quarantine, replaced=None))

    def _topics(self, state: StartState) -> Numbered:
        """The topics with their numbers, as the epoch takes them."""
        assert state.topics is not None, "the broker was asked"
        return state.topics if self.seeking is None else topics_of(state, self.seeking.aim)

    def refuse(self, state: StartState) -> None:
        """Raise the refusals of a start or a seek, before it creates or fences anything."""
        self._begin(state)
        topics = [each.topic for each in state.broker or ()]
        if len(topics) > 1 and self.contract.event_id.kind == "position" and not all(topic.id for topic in topics):
            raise refusals.topic_ids_missing(self.places.name)
        contract_change.refuse_state(self.contract, self.places.target, self.logs.target.state())

    def _begin(self, state: StartState) -> EpochOffsets:
        """The offsets of a start's decision or a seek's plan. Raises their refusals."""
        if self.seeking is None:
            return _decided(state, self.contract)
        seek_plan = counted(self.session, self.places, state, self.seeking)
        return EpochOffsets(seek_plan.starts, "seek" if state.was_read else "first", self.seeking.reason, seek_plan)

    def _completed(self, version: int | None, opened: tuple[Posting, ...]) -> list[Posting]:
        """What a commit of Spark's writer added, for the postings that no later commit completes."""
        state = self.logs.target.state()
        if not opened or version is None or state is None:
            return []
        ids = hashed_ids(state)
        try:
            return asked(self.places.lake, self.session, lambda engine: added_by(engine, self.places, version, ids, opened))
        except Unreadable:  # VACUUM removed the files: nobody can count any more
            return []

    def _read_before(self, state: StartState) -> dict[Partition, int]:
        """The highest offsets that batches have reached, from the ledger and from the commits that it lacks yet."""
        reached = dict(state.ledger.reached)
        for line in unwritten(self.logs, self.places.name)[0]:
            at = line.posting.range
            if at is not None and line.posting.why in ("batch", "rebuild"):
                reached[at.of] = max(at.end, reached.get(at.of, 0))
        return reached

    def _make_checkpoint(self, writer: Writer, table_id: str) -> str:
        """Create the folder of a new checkpoint, and remove all but the newest CHECKPOINTS_KEPT."""
        files, folder = files_of(self.places.checkpoints, self.session), self.places.checkpoint_of(writer.epoch)
        for epoch in checkpoints(files, self.places.checkpoint)[: -(CHECKPOINTS_KEPT - 1)]:
            files.remove(self.places.checkpoint_of(epoch))
        about = {"epoch": writer.epoch, "table_id": table_id}
        files.write(f"{folder}/{EPOCH_FILE}", json.dumps(about).encode())
        return folder


def _decided(state: StartState, contract: Contract) -> EpochOffsets:
    decision = decide(state, contract.source.starting_offsets)
    if isinstance(decision, Refuse):
        raise decision.error
    if isinstance(decision, Create):
        return EpochOffsets({})  # the tables are created next, and the offsets are decided then
    if decision.first:
        return EpochOffsets(decision.offsets, "first", f"starting_offsets: {contract.source.starting_offsets}")
    assert state.topics is not None, "the broker was asked"
    joining = sorted(state.topics.sources[number].name for number in decision.joins)
    return EpochOffsets(decision.offsets, reason=f"topics join: {', '.join(joining)}" if joining else "", joins=decision.joins)


def _lost_checkpoints(state: StartState, writer: Writer) -> Iterator[str]:
    if 0 < state.checkpoint.epoch < writer.epoch - 1 or (state.checkpoint.epoch == 0 and state.target.newest is not None):
        yield f"there is no checkpoint of epoch {writer.epoch - 1}: nothing is lost. It was deleted, or the start of that epoch was cut off"


def _snapshots(state: StartState) -> Snapshots:
    assert state.target.snapshot is not None and state.quarantine.snapshot is not None, "the tables exist by now"
    return Snapshots(state.target.snapshot, state.quarantine.snapshot)
