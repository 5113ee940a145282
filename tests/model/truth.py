"""What must hold, judged from the model's own state and by none of the engine's decisions (docs/contract.md, I1 to I9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ingest.places import Places
from ingest.stream.binding import prepared_binding, read_binding
from ingest.stream.ledger_row import LedgerRow
from ingest.stream.mark import Mark
from ingest.stream.offsets import PlannedBatch
from tests.model.delta import Table
from tests.model.engine import ledger_rows

if TYPE_CHECKING:
    from tests.model.driver import Driver
    from tests.model.kafka import Record
    from tests.model.world import World

Position = tuple[str, int, int]


class Violation(BaseException):
    """A promise that does not hold; `at` is the lost record, or the first that a batch passes over. No Exception: nothing on the way may
    take it for a store's failure."""

    def __init__(self, promise: str, what: str, at: Position | None = None) -> None:
        self.promise, self.what, self.at = promise, what, at
        super().__init__(f"{promise}: {what}")


def _whole(marks: Iterable[Mark]) -> Iterator[Mark]:
    """The batches before which none of their epoch is missing: a rebase, whose batches are numbered from 1, is batch 0."""
    numbers: dict[str, int] = {}
    for mark in sorted(marks, key=lambda mark: mark.id.number):
        number = numbers.get(mark.id.query_id, int(mark.epoch > 0))
        if mark.id.number == number:
            numbers[mark.id.query_id] = number + 1
            yield mark


class Truth:
    """Watches a world. `recorded` are gaps in the ledger (topic id, partition, start, end), `origins` where the first start
    began, `ingested` what batches have read, in force or not, `quarantine_lost` positions that somebody took from the quarantine, with
    whether a run was at work, `quarantine_touched` whether anybody did anything to it, `accepted` positions that a rebase was told to
    pass over."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.recorded: set[tuple[str, int, int, int]] = set()
        self.origins: dict[tuple[str, int], int] = {}
        self.first_told: dict[str, dict[int, int]] = {}
        self.jumped: set[tuple[str, int, int, int]] = set()
        self.quarantine_lost: dict[Position, bool] = {}
        self.quarantine_touched = False
        self.accepted: set[Position] = set()
        self.read_once: set[tuple[str, int]] = set()
        self.ingested: set[tuple[str, int, int, int]] = set()
        self.deleted: set[int] = set()
        self.dropped_at_work = False

    def began(self, topic_id: str, initial: Iterable[tuple[int, int]], *, rebased: bool = False) -> None:
        """The first checkpoint of a table has begun: before these offsets nothing was promised. Once a batch was read, a rebase may jump
        over nothing, though nothing be left of table and ledger; without checkpoint and table one begins anew."""
        self.origins |= {(topic_id, p): offset for p, offset in initial if not rebased or (topic_id, p) not in self.read_once}

    @contextmanager
    def harm(self, which: int, *, dropped: bool = False) -> Iterator[None]:
        """Somebody's RESTORE, REPLACE or DROP of a table."""
        at_work = bool(self.world.drivers)
        self.dropped_at_work |= dropped and at_work
        before = set(self._quarantine())
        yield
        if which == 1:
            self.quarantine_touched = True
            self.quarantine_lost |= dict.fromkeys(before - set(self._quarantine()), at_work)

    def committed(self, table: Table, writer: Driver | None) -> None:
        """After every commit of ours."""
        from tests.model.world import HOME

        mark = table.newest.commit.mark
        if mark is None:
            raise Violation("I1", f"a commit on {table.path} without its pair or its mark")
        # A batch that was begun before its brokers told topic ids goes on without one.
        if table.path != HOME.ledger and writer is not None and mark.topic_id not in ("", writer.read_topic):
            raise Violation("I6", f"batch {mark.id} is committed as of topic {mark.topic_id}, and was read from {writer.read_topic}")
        if table.path == HOME.ledger:
            rows = ledger_rows(table)
            batches = Counter((r.query_id, r.batch_id, r.topic_id, r.partition) for r in rows if r.kind == "batch")
            # Two drivers without locks can both look before either appends.
            if "bypass" not in self.world.events and (twice := [key for key, count in batches.items() if count > 1]):
                raise Violation("I7", f"the ledger has {twice} twice")
            gaps = Counter((r.query_id, r.topic_id, r.partition, r.start_offset, r.end_offset) for r in rows if r.kind == "gap_accepted")
            if "bypass" not in self.world.events and (doubled := [gap for gap, count in gaps.items() if count > 1]):
                raise Violation("I7", f"the ledger has the gaps {doubled} twice")
            for row in rows:
                if row.kind == "gap_accepted":
                    self._jumped(row)
            if len({row.query_id for row in rows}) == 1 and rows[0].kind == "rebase":  # a rebase where no batch was ever read
                self.first_told[rows[0].query_id] = {row.partition: row.start_offset for row in rows}
                self.began(rows[0].topic_id, self.first_told[rows[0].query_id].items(), rebased=True)
        elif table.path == HOME.target:
            assert writer is not None
            self._batch_committed(table, mark, writer)

    def _jumped(self, gap: LedgerRow) -> None:
        """A gap that is recorded, by the first rebase that tells of it: nothing of it was read by a batch that the log shows in force,
        with all of its epoch before it."""
        from tests.model.world import HOME

        topic_id, partition, start, end = key = (gap.topic_id, gap.partition, gap.start_offset, gap.end_offset)
        target = self.world.tables.get(HOME.target)
        told = [] if target is None else [each.mark for each in target.in_force() if each.version >= target.log_from]
        # What the quarantine has lost was read in vain, and all behind it; without the topic's id nothing says that it was this one.
        harmed = not topic_id or (self.quarantine_touched and self._quarantined(topic_id, partition))
        if not harmed and (gap.query_id, *key[1:]) not in self.jumped:
            for mark in _whole([mark for mark in told if mark is not None and mark.epoch < gap.epoch]):
                for read in mark.ranges if mark.topic_id == topic_id else ():
                    if read.partition == partition and max(start, read.start) < min(end, read.end):
                        raise Violation("I4", f"[{start}, {end}) is recorded as a gap, and batch {mark.id} had read {read}")
        self.recorded.add(key)
        self.jumped.add((gap.query_id, *key[1:]))

    def _quarantined(self, topic_id: str, partition: int) -> bool:
        """Whether any batch that ever was has put a record of this partition into quarantine."""
        marks = [version.commit.mark for table in self.world.tables.values() for version in table.versions]
        told = {(mark.topic_id, p) for mark in marks if mark is not None for p, counts in mark.counts if counts.quarantined}
        return (topic_id, partition) in told or any(place[:2] == (topic_id, partition) for place in self.quarantine_lost)

    def _batch_committed(self, table: Table, mark: Mark, writer: Driver) -> None:
        former = [each.mark for each in table.in_force() if each.version < table.number]
        marks = [each for each in former if each is not None]
        if any(each.id == mark.id for each in marks):
            raise Violation("I1", f"batch {mark.id} is committed twice")
        # RESTORE or REPLACE after the last look at the table, before the MERGE: the next look must notice, and what it took is read
        # again from the hole on; whether that is so, at_rest judges.
        if mark.epoch == 0:  # a partition that is added later begins where it is first read, whatever a rebase elsewhere has said of it
            first = (each for each in mark.ranges if mark.id.number == 0 or (mark.topic_id, each.partition) not in self.read_once)
            self.began(mark.topic_id, ((each.partition, each.start) for each in first))
        if mark.epoch > 0 and mark.id.number == 1:
            self._rebased(writer.places)
        self.read_once |= {(mark.topic_id, each.partition) for each in mark.ranges}
        self.ingested |= {(mark.topic_id, each.partition, each.start, each.end) for each in mark.ranges}
        slipped = writer.looked_at not in table.newest.force
        if not slipped and not self.dropped_at_work:  # a table made anew under a run: the next start refuses it (TABLE_REPLACED)
            self._joins(mark, marks)
        if not slipped:
            rows, quarantine = table.newest.rows, self._quarantine()
            for read in writer.read:
                known = read.record.id in rows and read.record.kind != "poison"
                position = (mark.topic_id, read.partition, read.offset)
                if not (known or read.record.id in self.deleted or position in quarantine or self.quarantine_lost.get(position)):
                    raise Violation("I7", f"batch {mark.id} is committed, and its record {read} is in no table")

    def _rebased(self, places: Places) -> None:
        """The first rebase where no batch was ever read begins where it was told to, and jumps over nothing; those after it begin there,
        too, but for the gaps that they record."""
        binding = read_binding(self.world.files, places.state)
        if binding is None or (rebase := binding.rebase) is None or any(former.ends for former in rebase.former):
            return
        initial = self.first_told.get(rebase.former[0].query_id, {}) if rebase.former else dict(rebase.baseline)
        self.began(binding.topic_id, initial.items(), rebased=True)

    def _joins(self, mark: Mark, former: list[Mark]) -> None:
        """Every version is a prefix by whole batches, and no offset is left out that nobody has accepted."""
        last = next((each.id.number for each in former if each.id.query_id == mark.id.query_id), None)
        first = 1 if mark.epoch > 0 else 0
        if mark.id.number != (first if last is None else last + 1):
            raise Violation("I1", f"batch {mark.id} is committed on a table whose last one is {last}")
        for each in mark.ranges:
            reached = self._reached(mark.topic_id, each.partition, former)
            if each.start > reached:
                found = f"batch {mark.id} begins at {each}, only [.., {reached}) is covered: a gap that nobody accepted"
                raise Violation("I4", found, (mark.topic_id, each.partition, reached))

    def _reached(self, topic_id: str, partition: int, marks: list[Mark]) -> int:
        """Up to where offsets are in batches in force or in recorded gaps, without a hole."""
        ranges = [(r.start, r.end) for each in marks if each.topic_id == topic_id for r in each.ranges if r.partition == partition]
        ranges += [(start, end) for topic, p, start, end in self.recorded if (topic, p) == (topic_id, partition)]
        reached = self.origins.get((topic_id, partition), 0)
        for start, end in sorted(ranges):
            if start <= reached < end:
                reached = end
        return reached

    def skipped(self, driver: Driver, planned: PlannedBatch, topic_id: str) -> None:
        """At every skip: the commit in force must have the same ranges (I2)."""
        if self.dropped_at_work:
            return  # the next start refuses it: TABLE_REWOUND or TABLE_REPLACED
        marks = [each.mark for each in self.world.tables[driver.places.target].in_force()]
        if not any(m is not None and (m.id, m.ranges, m.topic_id) == (planned.id, planned.ranges, topic_id) for m in marks):
            raise Violation("I2", f"batch {planned.id} with {planned.ranges} is skipped, and no commit in force holds it")

    def went_past(self, places: Places, lost: Iterable[Position], *, accept: bool) -> None:
        """A rebase has prepared or put in place a checkpoint that begins behind some of what the quarantine had lost by then: it was told
        to, or an earlier one was."""
        binding = prepared_binding(self.world.files, places) or read_binding(self.world.files, places.state)
        if binding is None or binding.rebase is None:
            return
        baseline = dict(binding.rebase.baseline)
        past = {place for place in lost if place[0] != binding.topic_id or place[2] < baseline.get(place[1], 0)}
        if accept:
            self.accepted |= past
        topic, stands = self.world.topic, self._standing()
        for position in sorted(past - self.accepted) if "bypass" not in self.world.events else ():
            topic_id, partition, offset = position
            recorded = any(gap[:2] == position[:2] and gap[2] <= offset < gap[3] for gap in self.recorded)
            if topic_id != topic.id or recorded or offset < self.origins.get((topic_id, partition), 0):
                continue
            record = topic.partitions[partition][offset]
            if record is None or stands(position, record):
                continue
            raise Violation(
                "LOST", f"{record} at {position}, which the quarantine has lost, is passed over, and nobody was asked", position
            )

    def at_rest(self, *, rebased: bool) -> None:
        """After a run to the end: every record is a row, in quarantine, or in a recorded gap. `rebased`: its checkpoint was."""
        from tests.model.world import HOME

        target = self.world.tables[HOME.target]
        topic, stands = self.world.topic, self._standing()
        marks = [each.mark for each in target.in_force() if each.mark is not None and each.mark.topic_id == topic.id]
        if rebased and not marks:
            self._rebased(HOME)
        for partition, log in enumerate(topic.partitions):
            # A first checkpoint that has found nothing to read began where the topic did.
            origin = self.origins.get((topic.id, partition), 0) if rebased or marks else topic.log_start[partition]
            gaps = [(start, end) for topic_id, p, start, end in self.recorded if (topic_id, p) == (topic.id, partition)]
            for offset, record in enumerate(log):
                if record is None or offset < origin or any(start <= offset < end for start, end in gaps):
                    continue
                position = (topic.id, partition, offset)
                if stands(position, record):
                    continue
                # Accepted by word, since a rebase went past it; or a driver without locks has looked at the quarantine since, and
                # remembered it so.
                if position in self.quarantine_lost and (position in self.accepted or "bypass" in self.world.events):
                    continue
                raise Violation("LOST", f"{record} at {position} is in no table and in no recorded gap", position)

        if "contract" not in self.world.events:  # under a looser one a rebase makes rows of what stays in quarantine
            quarantine = self._quarantine()
            for row in target.newest.rows.values():
                if row[2] in quarantine:
                    raise Violation("I4", f"{row[2]} is a row, and in quarantine too")

    def _standing(self) -> Callable[[Position, Record], bool]:
        """Whether a record is a row, was one that somebody deleted, or is in quarantine."""
        from tests.model.world import HOME

        target, quarantine = self.world.tables.get(HOME.target), self._quarantine()
        rows = {} if target is None else target.newest.rows
        return lambda position, record: (
            (record.id in rows and record.kind != "poison") or record.id in self.deleted or position in quarantine
        )

    def _quarantine(self) -> dict[Position, object]:
        from tests.model.world import HOME

        table = self.world.tables.get(HOME.quarantine)
        return {} if table is None else table.newest.rows  # type: ignore[return-value]
