"""The batches and rebases of a tale: what the engine writes, without its faults. Marks and ledger rows are made by its own code."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple
from itertools import takewhile

from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.conflict import CONFLICT
from ingest.stream.ledger_row import LedgerRow, project, project_rebase
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange
from tests.model.kafka import NAME, Read
from tests.model.lake import TOPIC_ID, Lake
from tests.model.tally import FAILED
from tests.model.truth import Position
from tests.model.world import HOME

HASH = "hash"
REPLAYED, LOSER, WINNER = "replayed", "loser", "winner"


class Ours:
    """The checkpoint at work: its query id, epoch, next batch, and where that begins. `written` is each batch with its version,
    `left_out` whether one was ever left out by a RESTORE or an overwrite."""

    def __init__(self, lake: Lake, dice: random.Random) -> None:
        self.lake, self.dice = lake, dice
        self.query, self.epoch, self.number = "q0", 0, 0
        self.at = [0] * len(lake.topic.partitions)
        self.former: list[tuple[str, int]] = []
        self.written: list[tuple[int, Mark]] = []
        self.strict = self.conflicts_with_table = self.left_out = False

    def batch(self, *, cut: bool = False) -> str:
        """One batch, or a `cut` one, killed between quarantine and target. What it did, in words; empty where nothing was to be read."""
        lake, logs = self.lake, self.lake.topic.partitions
        ends = [min(len(log), at + self.dice.choice((0, 2, 5, 9, 20))) for at, log in zip(self.at, logs, strict=True)]
        ranges = tuple(OffsetRange(p, at, end) for p, (at, end) in enumerate(zip(self.at, ends, strict=True)))
        if ends == self.at:
            return ""
        reads = [read for each in ranges for read in lake.topic.read(each.partition, each.start, each.end)]
        fates = self._fates(reads)
        id = BatchId(self.query, self.number)
        mark = Mark(HOME.pipeline, HOME.table, id, self.epoch, HASH, NAME, TOPIC_ID, ranges, self._counts(fates))
        failed = ((_position(read), fate) for read, fate in fates.items() if fate in (FAILED, CONFLICT))
        records = [(position, reason, id, "open") for position, reason in failed if position not in lake.records]
        rows = [
            (r.record.id, r.record.payload, _position(r)) for r, fate in fates.items() if fate == WINNER and r.record.id not in lake.rows
        ]
        told = f"batch {id} of {', '.join(map(str, ranges))}, quarantine {[(p[1:], why) for p, why, _, _ in records]}"
        with lake.change("BATCH"):
            if records:
                lake.write(lake.quarantine, "MERGE", records, mark=mark)
            if cut:
                return f"cut off: {told}"
            version = lake.write(lake.target, "MERGE", rows, mark=mark)
        self._ledger(project(version.commit, mark, Counter(row[2][1] for row in rows)))
        self.written.append((version.commit.version, mark))
        lake.promised |= {_position(read) for read in reads}
        lake.counted |= {_position(read) for read, fate in fates.items() if fate in (FAILED, CONFLICT)}
        self.at, self.number = ends, self.number + 1
        return f"{told}, rows {[(row[0], *row[2][1:]) for row in rows]}, counted {dict(mark.counts)}"

    def rebase(self) -> str:
        """A new checkpoint from where the table is, from the topic's first record, or from in between, maybe under another contract."""
        dice, lake, log_start = self.dice, self.lake, self.lake.topic.log_start
        epochs = [*self.former, (self.query, self.epoch)]
        unbroken = {query: self._unbroken(query) for query, _ in epochs}
        formers = tuple(_ended(query, epoch, [mark for _, mark in unbroken[query]]) for query, epoch in epochs)
        every = sorted((each for marks in unbroken.values() for each in marks), key=lambda each: each[0])
        reach = [each.end for each in every[-1][1].ranges] if every else [0] * len(log_start)
        how = dice.choice(("table", "earliest", "between", "between", "between"))
        wish = [each if how == "table" else 0 if how == "earliest" else dice.randint(0, each) for each in reach]
        begin = [max(pair) for pair in zip(wish, log_start, strict=True)]
        gaps = tuple((p, end, start) for p, (end, start) in enumerate(zip(reach, begin, strict=True)) if start > end)
        self.former, self.epoch = epochs, self.epoch + 1
        self.query, self.number, self.at = f"q{self.epoch}", 1, begin
        rebase = Rebase(formers, tuple(enumerate(begin)), gaps, lake.target.number)
        binding = Binding(NAME, TOPIC_ID, "", self.epoch, tuple(query for query, _ in epochs), rebase)
        self._ledger(project_rebase(binding, self.query, HOME, HASH, lake.now(), {}))
        self.strict, self.conflicts_with_table = dice.random() < 0.5, dice.random() < 0.4
        lake.promised -= {(TOPIC_ID, p, offset) for p, start, end in gaps for offset in range(start, end)}
        return f"rebase ({how}) from {reach} to {begin}, strict {self.strict}, conflicts with table {self.conflicts_with_table}"

    def rewound(self) -> str:
        """A RESTORE or an overwrite has left batches out: these promise nothing any more, and the error that a start ends with asks for a
        rebase."""
        self.left_out = True
        read = (each for version, mark in self.written if version in self.lake.target.newest.force for each in mark.ranges)
        positions = {(TOPIC_ID, each.partition, offset) for each in read for offset in range(each.start, each.end)}
        self.lake.promised = frozenset(positions & self.lake.sent.keys())
        return self.rebase()

    def in_force(self) -> set[BatchId]:
        """The batches that the target holds."""
        return {mark.id for version, mark in self.written if version in self.lake.target.newest.force}

    def _unbroken(self, query: str) -> list[tuple[int, Mark]]:
        """A checkpoint's batches up to the first that is not in force."""
        force = self.lake.target.newest.force
        return list(takewhile(lambda each: each[0] in force, (each for each in self.written if each[1].id.query_id == query)))

    def _fates(self, reads: Iterable[Read]) -> dict[Read, str]:
        """What stands stays; else the first copy of an event wins, others of another payload are conflicts, in the batch or, as the
        contract may say, in the table."""
        lake, own, fates = self.lake, self.lake.positions, dict[Read, str]()
        first: dict[int, Read] = {}
        for read in sorted(reads, key=lambda read: (_position(read) not in own, _position(read))):
            record, position = read.record, _position(read)
            there, row = lake.records.get(position), lake.rows.get(record.id)
            if position in own:
                first.setdefault(record.id, read)
                fates[read] = REPLAYED
            elif record.kind == "poison" or (record.kind == "odd" and self.strict):
                fates[read] = FAILED
            elif there is not None and there[1] == CONFLICT and there[3] == "open":
                fates[read] = CONFLICT
            else:
                head = first.setdefault(record.id, read)
                others = {head.record.payload} | ({row[1]} if self.conflicts_with_table and row is not None else set())
                fates[read] = CONFLICT if others != {record.payload} else WINNER if head is read else LOSER
                if there is not None and there[3] == "open" and (fates[read] == LOSER or (fates[read] == WINNER and row is not None)):
                    fates[read] = REPLAYED
        return fates

    def _counts(self, fates: dict[Read, str]) -> tuple[tuple[int, Counts], ...]:
        of = Counter[tuple[int, str]]()
        for read, fate in fates.items():
            stands = fate in (FAILED, CONFLICT) and _position(read) in self.lake.records
            of[read.partition, REPLAYED if stands else fate] += 1

        def counts(p: int) -> Counts:
            failed, losers, replayed = of[p, FAILED] + of[p, CONFLICT], of[p, LOSER], of[p, REPLAYED]
            return Counts(failed + losers + replayed + of[p, WINNER], failed, losers, replayed)

        return tuple((partition, counts(partition)) for partition in range(len(self.at)))

    def _ledger(self, rows: Iterable[LedgerRow]) -> None:
        self.lake.ledger.commit("WRITE", [("", *astuple(row)) for row in rows], parameters={"mode": "Append"})


def _ended(query: str, epoch: int, marks: list[Mark]) -> FormerEpoch:
    """How an epoch stands at a rebase; the baseline is batch 0 of one that a rebase has begun."""
    ends = tuple((each.partition, each.end) for each in marks[-1].ranges) if marks else ()
    return FormerEpoch(query, epoch, marks[-1].id.number if marks else 0 if epoch else -1, NAME, TOPIC_ID, ends)


def _position(read: Read) -> Position:
    return TOPIC_ID, read.partition, read.offset
