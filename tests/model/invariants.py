"""The guarantees I1 to I8, checked against the model's own state, without the engine's decision code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ingest.delta.batch_commit import NO_BATCH, Batch, BatchCommit, BatchId, Fence
from ingest.delta.posting import NOTHING, Key, Sums, Why
from ingest.kafka.offsets import OffsetRange, Partition
from tests.model.count import counted, findings, unsaid

if TYPE_CHECKING:
    from ingest.verify.count import Held
    from tests.model.driver import Driver
    from tests.model.kafka import Record
    from tests.model.world import World

Position = tuple[str, int, int]


class Violation(BaseException):
    """A broken guarantee. Not an Exception, so that no code on the way handles it as a failure of a store."""

    def __init__(self, promise: str, what: str) -> None:
        self.promise = promise
        super().__init__(f"{promise}: {what}")


class Invariants:
    """Watches a world.

    Topics are told apart by their ids, which the engine's positions do not have. `origins` are the offsets where reading of a topic
    started, `since` the first ones in Kafka when a writer was about to commit them. `gaps` are the positions that seeks were allowed to
    skip. `put` counts the rows and records that each batch stored, by its range. `deleted` are the ids of rows that a user deleted.
    `excused` are the accepted limits that were met.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.origins: dict[tuple[str, int], int] = {}
        self.since: dict[str, dict[tuple[str, int], int]] = {}
        self.gaps: set[Position] = set()
        self.put: dict[tuple[Key, str, int, int], int] = {}
        self.deleted: set[int] = set()
        self.stored: tuple[BatchId, dict[Partition, Sums]] = NO_BATCH, {}
        self.owner = 0
        self.excused: set[str] = set()

    # While drivers run.

    def opened(self, driver: Driver) -> None:
        """A driver has fenced both tables."""
        ledger = self.world.tables[2]
        epochs = {line.id.epoch for line in ledger.newest.rows} if ledger is not None else set()
        if not driver.disturbed and any(epoch >= driver.epoch for epoch in epochs | set(self.world.checkpoints)):
            raise Violation("I8", f"epoch {driver.epoch} was used before")
        if not driver.beneath:
            self.owner = max(self.owner, driver.epoch)

    def committed(self, which: int, epoch: int) -> None:
        """A driver of this epoch has committed a statement with a transaction id."""
        table = self.world.tables[which]
        assert table is not None
        batch_commit = table.newest.batch_commit
        assert batch_commit is not None
        if epoch < self.owner:
            raise Violation("I8", f"{batch_commit.kind} {batch_commit.id} on table {which}, although epoch {self.owner} has fenced it")
        before = next((each.batch_commit for each in reversed(table.versions[:-1]) if each.fenced), None)
        replaced = self.world.harmed & {"drop", "copy"}  # an epoch may be used again if nothing is left that shows it
        if (
            not replaced
            and before is not None
            and not isinstance(before.case, Fence)
            and before.id.epoch == batch_commit.id.epoch
            and before.writer != batch_commit.writer
        ):
            raise Violation("I8", f"two writers share epoch {epoch}")
        self.origins |= {place: each.start for place, each in _begun(batch_commit, "first")}
        read = {topic for topic, _ in self.origins}
        for place, _ in _begun(batch_commit, "seek"):
            self.origins.setdefault(place, 0 if place[0] in read else self.since[batch_commit.writer].get(place, 0))
        if isinstance(batch_commit.case, Batch):
            mine = {key.of: sums for key, sums in table.newest.sums().items() if (key.epoch, key.batch) == (epoch, batch_commit.id.number)}
            if which == 1:
                self.stored = batch_commit.id, mine
            records = self.stored[1] if self.stored[0] == batch_commit.id else {}
            for each in batch_commit.ranges:
                topic, key = batch_commit.topic(each.source).id, Key(epoch, batch_commit.id.number, *each.of)
                self.put[key, topic, each.start, each.end] = sum(sums.get(each.of, NOTHING).rows for sums in (mine, records))
                self.gaps -= {(topic, each.partition, offset) for offset in range(each.start, each.end)}

    def seeking(self, batch_commit: BatchCommit, driver: Driver) -> None:
        """A first start, one with a topic that joins, or a seek is about to commit its starting offsets."""
        world = self.world
        # Even if batches are known, a topic that none of them has read is read from its first record on.
        since = {(topic.id, p): offset for topic in world.topics for p, offset in enumerate(topic.log_start)}
        self.since[batch_commit.writer] = since
        for place, each in _begun(batch_commit, "first"):
            if not world.evidence():
                self.origins[place] = each.start
            elif not driver.beneath and each.start > self.origins.get(place, since.get(place, 0)):
                raise Violation("I6", f"a first start at {batch_commit.ends}, although earlier batches are known")
        for gap in (each.range for each in batch_commit.postings if each.why == "gap" and each.range is not None):
            account, topic = counted(world.tables), batch_commit.topic(gap.source).id

            def there(key: Key, held: tuple[Held, Held] = (account.target, account.quarantine)) -> int:
                return sum(each.found.get(key, NOTHING).rows for each in held)

            here = [
                (key, put, start, end) for (key, t, start, end), put in self.put.items() if (t, key.partition) == (topic, gap.partition)
            ]
            whole = all(
                key in account.lines and key not in account.books.unsettled and there(key) >= put
                for key, put, start, end in here
                if start < gap.end and end > gap.start
            )
            read = {o for *_, start, end in here for o in range(start, end)}
            if whole and set(range(gap.start, gap.end)) <= read and not world.blind():
                raise Violation("I6", f"{gap} counts as a gap, but it was read and nothing is missing")
            self.gaps |= {(topic, gap.partition, offset) for offset in range(gap.start, gap.end)}

    def put_back(self) -> None:
        """A user replaced a table with a copy or dropped it, so Delta no longer has the earlier fences."""
        self.owner = 0
        self.forget()

    def forget(self) -> None:
        """If nothing is left that shows that batches were committed, nothing can be missing."""
        if not self.world.evidence():
            self.put.clear()

    # When all drivers have ended.

    def at_rest(self) -> None:
        """Raises Violation."""
        world = self.world
        target, quarantine, _ = world.tables
        assert target is not None and quarantine is not None
        rows, records = target.newest.rows, quarantine.newest.rows
        numbers = {(row[0], row[5]) for row in rows.values()} | {(at[0], row[3]) for at, row in records.items()}
        if len(numbers) > min(len({number for number, _ in numbers}), len({topic for _, topic in numbers})):
            raise Violation("I1", f"a number means two topics, or a topic has two: {sorted(numbers)}")
        positions = {row[:3] for row in rows.values()}
        findings = self.findings()
        if len(positions) != len(rows):
            raise Violation("I3", "a position is in the target twice")
        both = [at for at, row in records.items() if row[2] == "open" and at in positions]
        if both and world.blind() and findings and self.excuse("nobody knows former batches"):
            both = []
        # A RESTORE or copy brings back rolled-back records, or lets an earlier run write again: verify lists them as uncommitted.
        not_committed = {(key.epoch, key.batch) for key in counted(world.tables).quarantine.uncommitted}
        uncommitted = {records[at][:2] for at in both} <= not_committed
        if both and uncommitted and "quarantine" in world.harmed and self.excuse("an uncommitted record put back"):
            both = []
        if both:
            raise Violation("I5", f"{both[0]} is a row and also open in quarantine")
        open_ = {(row[3], *at[1:]) for at, row in records.items() if row[2] == "open"}
        # A gap over the copy that was the row covers the event, even if another copy was read elsewhere as a duplicate.
        skipped = {record.id for at in self.gaps if (record := self._record(at)) is not None}
        # A row that is re-read under a stricter contract becomes a quarantined record; its duplicates elsewhere are not re-read.
        refused = {record.id for at in open_ if (record := self._record(at)) is not None and record.kind == "odd"}
        for at, id in self._promised():
            if id in rows or id in self.deleted or id in skipped or at in open_ or at in self.gaps:
                continue
            if id in refused and self.excuse("a duplicate of a record that is refused now"):
                continue
            if (
                at[0] not in {topic.id for topic in world.topics}
                and (world.refused or findings or world.blind())
                and self.excuse("a former topic")
            ):
                continue  # Kafka or the contract no longer has it, and it was reported, or the batch is unknown
            if world.limit_met and findings and self.excuse("a replacement cleaned from the log"):
                continue
            raise Violation(
                "LOST",
                f"event {id} at {at} is neither in target nor in quarantine, and in no gap"
                + ("" if findings else ", and verify has no finding"),
            )
        if findings and not self._excused():
            raise Violation("I4", f"verify finds {findings}")

    def findings(self) -> list[str]:
        """The current findings of verify."""
        world = self.world
        found = findings(world.tables, world.topics)
        return found if world.beneath else [*found, *unsaid(world.tables)]  # what a run wrote beneath a copy, verify counts itself

    def _record(self, at: Position) -> Record | None:
        return self.world.by_id[at[0]].partitions[at[1]][at[2]]

    def _excused(self) -> bool:
        """Whether the findings are due to an accepted limit."""
        world = self.world
        limits = (
            (world.blind(), "nobody knows former batches"),
            (world.limit_met, "a replacement cleaned from the log"),
            (bool(world.former or world.left), "a former topic"),
            (bool(self.deleted) and "clean" in world.harmed, "a DELETE cleaned from the log"),
            (world.setting.spark and "clean" in world.harmed, "an open batch cleaned from the log"),
            (any(("target", "quarantine")[which] in world.harmed for which in world.removed), "a removal undone"),
        )
        return any(met and self.excuse(name) for met, name in limits)

    def excuse(self, limit: str) -> bool:
        """Record an accepted limit as met; always True."""
        self.excused.add(limit)
        return True

    def _promised(self) -> Iterator[tuple[Position, int]]:
        """Records that must not be lost: all of the topics, and those of former topics that a batch has read."""
        world = self.world
        for topic in world.topics:
            for p, log in enumerate(topic.partitions):
                for offset in range(self.origins.get((topic.id, p), 0), len(log)):
                    if (record := log[offset]) is not None:
                        yield (topic.id, p, offset), record.id
        for key, former, start, end in self.put:
            for offset in range(start, end) if world.by_id[former] not in world.topics else ():
                if (record := world.by_id[former].partitions[key.partition][offset]) is not None:
                    yield (former, key.partition, offset), record.id


def _begun(batch_commit: BatchCommit, why: Why) -> Iterator[tuple[tuple[str, int], OffsetRange]]:
    """Topic id and partition of the offsets at which an epoch begins for this reason."""
    for each in batch_commit.postings:
        if each.why == why and each.range is not None:
            yield (batch_commit.topic(each.range.source).id, each.range.partition), each.range
