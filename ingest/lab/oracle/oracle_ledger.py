"""(g) and the sums of (b): every row and record names its batch, and the ledger agrees with the target's log and the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.oracle_tables import PLACES, Lake, OracleLedgerRow, Place, Position

# End and topic id of a ledger row, then the reason (`why`) of an epoch or the target's version of a batch.
Content = tuple[int, str, str | int | None]


def check_ledger(case: Case) -> Iterator[str]:
    """(g) Ledger rows and target commits are one to one, and every count of a batch equals the content of the tables."""
    lake, expected = case.lake, _expected(case.lake)
    for key, count in sorted(Counter(row.key for row in lake.ledger).items()):
        if count > 1:
            yield f"{case.run.table}: ledger, {key}: it is there {count} times (g)"
    for key in sorted(expected.keys() - {row.key for row in lake.ledger}):
        yield f"{case.run.table}: ledger, {key}: it is missing, the target's log says {expected[key]} (g)"
    for row in lake.ledger:
        what = f"{case.run.table}: ledger, {row.key}"
        content = row.end_offset, row.topic_id, {"epoch": row.why, "batch": row.target_version}.get(row.kind)
        if row.kind not in ("batch", "epoch", "gap_accepted"):
            yield f"{what}: nothing in this run writes rows of this kind (g)"
        elif row.key not in expected and row.target_version >= lake.first("target"):
            yield f"{what} names target version {row.target_version}, and no target commit of that is in the log (g)"
        elif expected.get(row.key, content) != content:
            yield f"{what} says {content}, the target's log {expected[row.key]} (g)"
        if row.topic_id not in case.views:
            yield f"{what} names the topic id {row.topic_id!r}, which no topic of this name had (g)"
        if row.kind == "batch":
            yield from _counts(case, row, what)
        elif row.kind == "gap_accepted" and row.gap != row.end_offset - row.start_offset:
            yield f"{what}: gap {row.gap}, and it spans {row.end_offset - row.start_offset} offsets (g)"
    yield from _existing_rows(case)


def _expected(lake: Lake) -> dict[tuple[str, int, int, int, int], Content]:
    """The rows that the seeks and batches in the target's log require, by key."""
    rows: dict[tuple[str, int, int, int, int], Content] = {}
    # Seeks that the log no longer contains are taken from the ledger.
    sought = {row.epoch for row in lake.ledger if row.kind == "epoch" and row.batch == 1 and row.target_version < lake.first("target")}
    sought |= {seek.number[0] for seek in lake.commits("target", "seek")}
    for seek in lake.commits("target", "seek"):
        why = str((seek.metadata or {}).get("why"))
        rows |= {("epoch", *seek.number, p, start): (start, seek.topic_id, why) for p, start in seek.starts.items()}
        rows |= {("gap_accepted", *seek.number, p, start): (end, seek.topic_id, None) for p, start, end in seek.gaps}
    for batch in lake.batches:
        for p, (start, end) in batch.ranges.items():
            rows["batch", *batch.number, p, start] = end, batch.topic_id, batch.version
            if batch.number[1] == 2 and batch.number[0] not in sought:
                rows["epoch", batch.number[0], 0, p, start] = start, batch.topic_id, "start"
    return rows


def _counts(case: Case, row: OracleLedgerRow, what: str) -> Iterator[str]:
    lake, kafka = case.lake, case.views.get(row.topic_id)
    if row.records_read != row.inserted + row.duplicate + row.quarantined:
        counted = f"inserted {row.inserted} + duplicate {row.duplicate} + quarantined {row.quarantined}"
        yield f"{what}: read {row.records_read} is not {counted} (g)"
    if row.end_offset - row.start_offset != row.records_read + row.gap:
        yield f"{what}: {row.end_offset - row.start_offset} offsets are not read {row.records_read} + gap {row.gap} (g)"
    for name, table, value in (("inserted", "target", row.inserted), ("quarantined", "quarantine", row.quarantined)):
        held, taken = lake.counted[table][row.place], lake.taken[table][row.place]
        if held + taken > value or (held + taken < value and table not in lake.blind):
            also = f" and the test took {taken}" if taken else ""
            yield f"{what}: {name} {value}, the {table} holds {held} rows of it{also} (b)"
    counts = case.counts.get(row.place, {})
    for name, value in (("read", row.records_read), ("quarantined", row.quarantined)):
        if counts.get(name, value) != value:
            yield f"{what}: {name} {value}, the commit's userMetadata says {counts[name]} (g)"
    if row.duplicate < (inside := counts.get("duplicate_in_batch", 0)):
        yield f"{what}: duplicate {row.duplicate}, the commit's userMetadata says {inside} inside the batch (g)"
    if kafka is not None and row.start_offset >= kafka.begin.get(row.partition, 0):
        records = sum((row.partition, offset) in kafka.records for offset in range(row.start_offset, row.end_offset))
        if records != row.records_read:
            yield f"{what}: read {row.records_read}, Kafka shows {records} committed records in [{row.start_offset}, {row.end_offset}) (b)"


def _existing_rows(case: Case) -> Iterator[str]:
    """`stood` is a batch's row count in both tables, at the versions that a seek read before the batch's range was read again."""
    held: dict[Place, set[int]] = defaultdict(set)
    rows = [row for row in case.lake.ledger if row.stood is not None]
    for seek in case.lake.commits("target", "seek"):
        snapshots = (seek.metadata or {}).get("looked") or {}
        then = [case.lake.history.get((table, int((snapshots.get(table) or {}).get("version", -1)))) for table in PLACES]
        for row in rows:
            if row.epoch < seek.number[0] and row.topic_id == seek.topic_id and seek.starts.get(row.partition, 0) < row.end_offset:
                # Any number is accepted if a version can no longer be read.
                held[row.place].add(row.stood or 0 if None in then else sum(each[row.place] for each in then if each))
    for row in rows:
        if row.stood not in held[row.place]:
            saw = sorted(held[row.place])
            yield f"{case.run.table}: ledger, {row.key}: existing rows {row.stood}, the seeks that read it again saw {saw} (g)"


def check_batches(case: Case) -> Iterator[str]:
    """(b) Each row and record is inside its batch's range, and (a) no record of an uncommitted batch stays after its range is re-read."""
    lake = case.lake
    for table, held in (("target", lake.target), ("quarantine", lake.quarantine)):
        for position, row in held.items():
            epoch, batch = row.number
            what = f"{case.where(position)}: the {table} names epoch {epoch} batch {batch}"
            if row.number in lake.ranges:
                start, end = lake.ranges[row.number].get(position.partition, (0, 0))
                if not start <= position.offset < end or lake.topics[epoch] != position.topic_id:
                    yield f"{what}, which read [{start}, {end}) of the topic id {lake.topics[epoch]!r} (b)"
            elif table == "target":
                yield f"{what}, and no target commit of that is in the log (b)"
            else:
                yield from _left(lake, position, epoch, f"{what}, and no target commit of that is in the log")


def _left(lake: Lake, position: Position, epoch: int, what: str) -> Iterator[str]:
    """Each later epoch, up to the next one with a batch, must roll it back unless it reads another topic or starts after the record."""
    began: dict[int, bool] = {}
    for commit in lake.commits("target", "seek", "batch"):
        if commit.number[0] > epoch:
            start = commit.starts.get(position.partition, 0) or commit.ranges.get(position.partition, (0, 0))[0]
            began.setdefault(commit.number[0], commit.topic_id == position.topic_id and start <= position.offset)
            if commit.kind == "batch":
                break
    if not began:
        yield f"{what}, and no later epoch has started (g)"
    yield from (f"{what}; epoch {later} reads it again and has not rolled it back (a)" for later, again in began.items() if again)
