"""What the ledger knows of every checkpoint that wrote the table: its last batch, how far it read, where its epoch ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.stream.binding import Gap
from ingest.stream.decide import LastWritten
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange


@dataclass(frozen=True)
class EpochBegin:
    """The baseline of a rebased epoch: its query id, offsets by partition, and the target's version at that time."""

    query_id: str
    topic: str
    topic_id: str
    table_version: int
    baseline: dict[int, int]


@dataclass(frozen=True)
class LedgerSummary:
    """What is known by query id: `last`, its last batch; `quarantined`, the first and the last with records in quarantine;
    `epochs`, its epoch; `ended`, the last batch in force (-1: none) of those that a rebase has followed; `begins`, how rebased ones began.

    `quarantined_from` is where the first batch with records in quarantine began, by (topic id, partition); `reached` how far was
    read, by (query id, topic id, partition); `gaps` what each rebased one jumped over on purpose when it began.
    """

    last: dict[str, LastWritten] = field(default_factory=dict)
    quarantined: dict[str, tuple[int, int]] = field(default_factory=dict)
    quarantined_from: dict[tuple[str, int], int] = field(default_factory=dict)
    reached: dict[tuple[str, str, int], int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    begins: dict[str, EpochBegin] = field(default_factory=dict)
    gaps: dict[str, tuple[Gap, ...]] = field(default_factory=dict)

    def last_batch(self, query_id: str) -> int:
        """The last batch of a query id that the ledger has; -1 for none."""
        return self.last[query_id].mark.id.number if query_id in self.last else -1


def summary_of(
    newest: Iterable[Mapping[str, Any]], rebases: Iterable[Mapping[str, Any]], quarantined: Iterable[Mapping[str, Any]]
) -> LedgerSummary:
    """From the newest batch row of each (query id, topic id, partition), with `reached`, its greatest end offset; all rows of
    kind rebase and gap_accepted; and of batches with records in quarantine `first_batch`, `last_batch` and the least `start`, by the same
    three."""
    batches: dict[str, list[Mapping[str, Any]]] = {}
    reached: dict[tuple[str, str, int], int] = {}
    epochs: dict[str, int] = {}
    for row in newest:
        epochs[row["query_id"]] = row["epoch"]
        batches.setdefault(row["query_id"], []).append(row)
        reached[row["query_id"], row["topic_id"], row["partition"]] = row["reached"]
    last = {}
    newest_rows: dict[str, Mapping[str, Any]] = {}
    for query_id, rows in batches.items():
        number = max(row["batch_id"] for row in rows)
        last[query_id] = _last_of([row for row in rows if row["batch_id"] == number])
        newest_rows[query_id] = next(row for row in rows if row["batch_id"] == number)
    kept = list(rebases)
    told = [row for row in kept if row["kind"] == "rebase"]
    gaps: dict[str, list[Gap]] = {}
    for row in kept:
        if row["kind"] == "gap_accepted":
            gaps.setdefault(row["query_id"], []).append((row["topic_id"], row["partition"], row["start_offset"], row["end_offset"]))
    epochs |= {row["query_id"]: row["epoch"] for row in told}
    ended, begins = _epochs(told, epochs, newest_rows)
    proven: dict[str, tuple[int, int]] = {}
    starts: dict[tuple[str, int], int] = {}
    for row in quarantined:
        known = proven.get(row["query_id"], (row["first_batch"], row["last_batch"]))
        proven[row["query_id"]] = min(known[0], row["first_batch"]), max(known[1], row["last_batch"])
        key = (row["topic_id"], row["partition"])
        starts[key] = min(starts.get(key, row["start"]), row["start"])
    jumped = {query_id: tuple(sorted(each)) for query_id, each in gaps.items()}
    return LedgerSummary(last, proven, starts, reached, epochs, ended, begins, jumped)


def _epochs(
    rebases: list[Mapping[str, Any]], epochs: dict[str, int], newest_rows: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, int], dict[str, EpochBegin]]:
    """Rows of one moment are one rebase, whose own epoch is the highest among them: there its rows are the begin, all others an end.
    Of an epoch's ends that of the latest rebase counts, by epochs: what the clock said can be a day off.

    An epoch that has committed since was not ended: its checkpoint was put back after a rebase that was cut off.
    """
    began: dict[tuple[Any, int], int] = {}
    for row in rebases:
        began[_moment(row)] = max(began.get(_moment(row), 0), row["epoch"])
    newest_epoch = max(epochs.values(), default=0)
    ended: dict[str, int] = {}
    begins: dict[str, EpochBegin] = {}
    for query_id in {row["query_id"]: None for row in rebases}:
        rows = [row for row in rebases if row["query_id"] == query_id]
        begin = [row for row in rows if began[_moment(row)] == epochs[query_id] > 0]
        if begin:
            baseline = {row["partition"]: row["start_offset"] for row in begin}
            topic = begin[0]["topic"], begin[0]["topic_id"]
            begins[query_id] = EpochBegin(query_id, *topic, begin[0]["target_version"], baseline)
        if epochs[query_id] < newest_epoch:
            end = max(rows, key=lambda row: (began[_moment(row)], row["committed_at"], row["batch_id"]))
            newest = newest_rows.get(query_id, end)
            if not all(newest[name] > end[name] for name in ("batch_id", "committed_at", "target_version")):
                ended[query_id] = end["batch_id"]
    return ended, begins


def _moment(row: Mapping[str, Any]) -> tuple[Any, int]:
    """What all rows of one rebase have in common."""
    return row["committed_at"], row["target_version"]


def _last_of(rows: list[Mapping[str, Any]]) -> LastWritten:
    first = rows[0]
    ranges = tuple(sorted(OffsetRange(r["partition"], r["start_offset"], r["end_offset"]) for r in rows))
    counts = tuple(sorted((r["partition"], Counts(r["records_read"], r["quarantined"], 0, r["replayed"])) for r in rows))
    id = BatchId(first["query_id"], first["batch_id"])
    mark = Mark(
        first["pipeline"], first["table"], id, first["epoch"], first["contract_hash"], first["topic"], first["topic_id"], ranges, counts
    )
    return LastWritten(mark, first["target_version"])
