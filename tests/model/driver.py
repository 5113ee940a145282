"""A driver: what ingest/stream/query.py and Spark's micro-batch execution do between two commits, step by step.

A generator that rests between the named steps of a batch (ingest/stream/batch.py), where it can be left, killed or overtaken;
inside a step every change of a file or table is a place to be interrupted too (World.point).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ingest.contract import Contract
from ingest.errors import IngestError, Refused
from ingest.places import Places
from ingest.stream import batch, commit
from ingest.stream.assessment import assess
from ingest.stream.decide import Skip
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger import Ledger
from ingest.stream.ledger_row import inserted_by_partition
from ingest.stream.mark import Counts
from ingest.stream.offsets import CheckpointFiles, OffsetRange, PlannedBatch
from ingest.stream.opening import Opening
from ingest.stream.situation import BrokerFacts
from ingest.stream.topic import Topic, refuse_another
from tests.model import kafka
from tests.model.delta import ModelLog
from tests.model.engine import Frame, Session, summarise
from tests.model.kafka import Read
from tests.model.tally import Tally, tally

if TYPE_CHECKING:
    from tests.model.world import World


class SparkFailed(Exception):
    """What Spark raises where its checkpoint or its source is not as it must be."""


class Locked(Refused):
    """Another driver holds a lock."""

    def __init__(self) -> None:
        super().__init__("LOCKED", "a lock is held.", expected="no other run.", remedy="wait.")


class ModelOpening(Opening):
    """Opening, from a world in place of a session."""

    def __init__(self, world: World, session: Session, places: Places, topic: Topic) -> None:
        self._session: Any = session
        self._contract = world.contract
        self._places = places
        self._topic = topic
        self._files: Any = world.files
        self._lake: Any = world.files
        self._log: DeltaLog = ModelLog(world.files, places.target)
        self._quarantine = ModelLog(world.files, places.quarantine).state()
        broker = BrokerFacts(topic.name, topic.id, world.topic.bounds())
        self._assessment = assess(self._files, self._lake, places, summarise(world, places.ledger), broker)


class Driver:
    """One process of a driver on one checkpoint. `bypass`: it takes no lock, as where there is none to take."""

    def __init__(self, world: World, places: Places, *, bypass: bool = False) -> None:
        self.world, self.places, self.bypass = world, places, bypass
        self.session = Session(world, self)
        self.stop = False
        self.idle = False
        self.read: list[Read] = []
        self.read_topic = ""
        self.looked_at = -1
        self._life = self._run()

    def step(self) -> bool:
        """On to the next place to rest; False if it has ended. Raises what ended it."""
        return next(self._life, None) is not None

    def _run(self) -> Iterator[str]:
        world = self.world
        topic = Topic(kafka.NAME, world.topic.id, tuple(range(len(world.topic.partitions))))
        world.take_locks(self)
        opening = ModelOpening(world, self.session, self.places, topic)
        opening.refuse()
        yield "opened"
        if finished := (former := opening.unfinished_contract()) is not None:
            assert former is not None
            opening.make_tables()
            yield from self._launch(opening, topic, former, opening.unfinished)
            opening = ModelOpening(world, self.session, self.places, topic)
            opening.refuse()
        opening.make_tables()
        opening.bind(anew=finished)
        yield from self._launch(opening, topic, opening._contract, None)

    def _launch(self, opening: Opening, topic: Topic, contract: Contract, until: int | None) -> Iterator[str]:
        ledger = opening.ledger()
        checkpoint = CheckpointFiles(self.world.files, self.places.checkpoint)
        table = batch.Table(contract, self.places, topic, opening.epoch, checkpoint, ledger, lambda: self._still_ours(topic))
        try:
            yield from self._stream(table, until)
        except GeneratorExit:
            raise
        except Exception:
            with suppress(IngestError):
                ledger.append(self.session)  # type: ignore[arg-type]
            raise
        ledger.append(self.session)  # type: ignore[arg-type]

    def _stream(self, table: batch.Table, until: int | None) -> Iterator[str]:
        """Spark: the batch at hand again, then new ones."""
        files, root = self.world.files, self.places.checkpoint
        if table.checkpoint.query_id() is None:
            self._spark_writes(f"{root}/metadata", json.dumps({"id": self.world.new_id("q")}))
        planned, done = table.checkpoint.numbers("offsets"), table.checkpoint.numbers("commits")
        number, again = 0, False
        if planned:
            number = planned[-1]
            if number > 0 and files.read(f"{root}/offsets/{number - 1}") is None:
                raise SparkFailed(f"batch {number - 1} doesn't exist")
            again = not done or done[-1] < number
            number += 0 if again else 1
        while True:
            if not again:
                yield "between"
                while not self._plan(number):
                    self.idle = True
                    if self.stop:
                        return
                    yield "idle"
                self.idle = False
            if self.stop:
                return  # StopRequested: planned, not begun
            yield from self._batch(table, number)
            yield "done"
            self._commit_log(number)
            number, again = number + 1, False
            if until is not None and number > until:
                return

    def _plan(self, number: int) -> bool:
        """Write the offset log of batch `number`; False if there is nothing to read."""
        root, topic = self.places.checkpoint, self.world.topic
        bounds = topic.bounds()
        if number > 0:
            before = self._ends(f"offsets/{number - 1}")
        else:
            if self.world.files.read(f"{root}/sources/0/0") is None:
                initial = {p: earliest for p, (earliest, _) in bounds.items()}
                self._spark_writes(f"{root}/sources/0/0", "\0v1\n" + json.dumps({kafka.NAME: initial}))
            before = self._ends("sources/0/0")
        if lost := set(before) - set(bounds):
            raise SparkFailed(f"partitions are gone: {lost}")
        ends, room = {}, self.world.limit
        for p, (earliest, latest) in bounds.items():
            if p not in before and earliest > 0:
                raise SparkFailed(f"added partition {p} starts from {earliest} instead of 0")
            start = before.get(p, 0)
            if latest < start:
                raise SparkFailed(f"partition {p} was changed from {start} to {latest}")
            ends[p] = min(latest, start + room)
            room -= ends[p] - start
        if ends == before and number > 0:  # batch 0 is run even if it is empty
            return False
        conf = {"batchWatermarkMs": 0, "batchTimestampMs": 1_735_787_100_000 + number, "conf": {}}
        text = "\n".join(["v1", json.dumps(conf), json.dumps({kafka.NAME: {str(p): end for p, end in ends.items()}})])
        self._spark_writes(f"{root}/offsets/{number}", text)
        return True

    def _ends(self, name: str) -> dict[int, int]:
        data = self.world.files.read(f"{self.places.checkpoint}/{name}")
        try:
            assert data is not None
            found: dict[str, int] = json.loads(data.decode().splitlines()[-1])[kafka.NAME]
        except (AssertionError, ValueError, KeyError, IndexError, TypeError) as error:
            raise SparkFailed(f"{name} cannot be read") from error
        return {int(p): offset for p, offset in found.items()}

    def _commit_log(self, number: int) -> None:
        self._spark_writes(f"{self.places.checkpoint}/commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _spark_writes(self, path: str, text: str) -> None:
        """A file of a metadata log: it is never written over."""
        self.world.point("file")
        if self.world.files.read(path) is not None:
            raise SparkFailed(f"concurrent update to the log: {path}")
        self.world.files.put(path, text.encode())

    def _batch(self, table: batch.Table, number: int) -> Iterator[str]:
        """ingest.stream.batch.process, with the records counted here and not by Spark."""
        query_id = table.checkpoint.query_id()
        assert query_id is not None
        planned = table.checkpoint.planned(query_id, number)
        yield "after_offset_log"
        decision = batch._decide(table, planned)
        if isinstance(decision, Skip):
            self.world.truth.skipped(self, planned, table.topic.id)
            return
        begun = batch._begun(table, planned) is not None
        self._read(planned)
        if self.world.planted.offsets_from_data and self.read:
            planned = replace(planned, ranges=tuple(self._of_data(each) for each in planned.ranges))
        found = tally(self, table, planned, begun=begun)
        yield "decoded"
        table.still_ours()
        if self.world.planted.quarantine_last:
            yield from self._target(table, planned, found, found.counts)
            self._quarantine(table, planned, found, begun=begun)
            yield "after_quarantine"
            return
        counts = self._quarantine(table, planned, found, begun=begun)
        yield "after_quarantine"
        yield from self._target(table, planned, found, counts)

    def _read(self, planned: PlannedBatch) -> None:
        self.read_topic = self.world.topic.id
        self.read = [read for each in planned.ranges for read in self.world.topic.read(each.partition, each.start, each.end)]

    def _still_ours(self, topic: Topic) -> None:
        """Query._still_ours; locks of this model are never lost."""
        if not self.world.planted.topic_asked_once:
            refuse_another(replace(topic, id=self.world.topic.id), topic, self.places.name)

    def _of_data(self, planned: OffsetRange) -> OffsetRange:
        offsets = [read.offset for read in self.read if read.partition == planned.partition] or [planned.start]
        return OffsetRange(planned.partition, min(offsets), max(offsets) + 1 if len(offsets) > 1 else planned.end)

    def _decide(self, table: batch.Table, planned: PlannedBatch) -> None:
        if not self.world.planted.decides_once:
            batch._decide(table, planned)
        target = self.world.tables.get(self.places.target)
        self.looked_at = target.number if target is not None else -1

    def _quarantine(self, table: batch.Table, planned: PlannedBatch, found: Tally, *, begun: bool) -> dict[int, Counts]:
        if not begun and not found.failed:
            return found.counts
        mark = table.mark(planned, sorted(found.counts.items()))
        rows = [((table.topic.id, r.partition, r.offset), r.partition, planned.id, code) for r, code in found.failed]
        source: Any = Frame(self.session, rows)
        log = table.ledger.quarantine_log
        outcome = commit._insert_missing(source, None, log, mark, "quarantine", lambda: self._decide(table, planned))  # type: ignore[arg-type]
        if begun:
            return batch._as_begun(source, found, table, planned)  # type: ignore[arg-type]
        expected = {partition: c.quarantined for partition, c in found.counts.items()}
        stored = inserted_by_partition(self.session, self.places.quarantine, outcome.commit, expected, "partition")  # type: ignore[arg-type]
        return {
            p: Counts(c.read, stored.get(p, 0), c.losers, c.replayed + c.quarantined - stored.get(p, 0)) for p, c in found.counts.items()
        }

    def _target(self, table: batch.Table, planned: PlannedBatch, found: Tally, counts: dict[int, Counts]) -> Iterator[str]:
        world, ledger = self.world, table.ledger
        mark = table.mark(planned, sorted(counts.items()))
        rows = [(r.record.id, r.partition, (table.topic.id, r.partition, r.offset), r.record.payload) for r in found.winners]
        source: Any = Frame(self.session, rows)
        outcome = commit._insert_missing(source, None, ledger.target_log, mark, "target", lambda: self._decide(table, planned))  # type: ignore[arg-type]
        if not isinstance(outcome, commit.Written):
            world.truth.skipped(self, planned, table.topic.id)
        yield "after_target"
        ledger.saw(outcome.commit)
        self._append_if_due(ledger)
        yield "after_ledger"

    def _append_if_due(self, ledger: Ledger) -> None:
        ledger._appended_at = float("-inf") if self.world.minute_passed() else float("inf")
        ledger.append_if_due(self.session)  # type: ignore[arg-type]
