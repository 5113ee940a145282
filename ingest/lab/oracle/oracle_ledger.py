"""(g) and the sums of (b): the postings add up to the rows, each row is in its batch's range, and the ledger has the postings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from ingest.lab.oracle.case import Case
from ingest.lab.oracle.oracle_log import POSITIONED
from ingest.lab.oracle.oracle_tables import PLACES, Lake, Line, Position
from ingest.lab.oracle.sources import NOTHING, Key, OraclePosting, Sums, added


def check_sums(case: Case) -> Iterator[str]:
    """(b) By epoch, batch, source and partition, all postings add up to the rows that are there, but for those that the test deleted."""
    lake = case.lake
    for table in PLACES:
        posted: dict[Key, Sums] = defaultdict(lambda: NOTHING)
        for _, posting in lake.lines:
            posted[posting.key] = added(posted[posting.key], posting.sums(table))
        held, gone = lake.sums_at(table), _gone(lake, table)
        said = {posting.key for _, posting in lake.lines if posting.target is not None}
        open_ = {posting.key for _, posting in lake.lines} - said if table == "target" else set()
        for key in sorted((posted.keys() | held.keys()) - open_):
            # check_batches judges the records of batches that were cut off.
            if table in lake.blind or (table == "quarantine" and key[:2] not in lake.ranges):
                continue
            there = added(held.get(key, NOTHING), gone.get(key, NOTHING))
            if posted[key] != there:
                also = f" and the test took {gone[key][0]}" if gone.get(key, NOTHING)[0] else ""
                what = f"{case.run.table}: epoch {key[0]} batch {key[1]}, source {key[2]} partition {key[3]}"
                yield f"{what}: the postings have {posted[key]} of it, the {table} holds {held.get(key, NOTHING)}{also} (b)"


def _gone(lake: Lake, table: str) -> Mapping[Key, Sums]:
    """What the test took and the books still have: a seek writes off what it finds missing of its topics, but not what a DELETE took."""
    seen = {topic_id: seek.saw(table) for seek in lake.commits("target", "seek") for topic_id, _ in seek.starts}
    deleted: list[tuple[int, dict[Key, Sums]]] = [(-1, {})]  # by the version from which on it is true
    lost: dict[Key, Sums] = {}
    operations = {commit.version: commit for commit in lake.logs[table]}
    for version, taken in sorted(lake.taken[table].items()):
        commit, before = operations[version], deleted[-1][1]
        after = before
        if commit.operation == "DELETE":
            after = _sum(before, taken)
        elif commit.restored >= 0:
            after = next(each for since, each in reversed(deleted) if since <= commit.restored)
        deleted.append((version, after))
        fresh = (key for key in taken.keys() | before.keys() | after.keys() if version > seen.get(lake.topic(key[2]), -1))
        lost |= {key: each for key, each in _sum(_sum(lost, taken), _sum(before, after, -1)).items() if key in {*fresh}}
    return _sum(lost, deleted[-1][1])


def _sum(one: Mapping[Key, Sums], other: Mapping[Key, Sums], sign: int = 1) -> dict[Key, Sums]:
    return {key: added(one.get(key, NOTHING), other.get(key, NOTHING), sign) for key in one.keys() | other.keys()}


def check_ledger(case: Case) -> Iterator[str]:
    """(g) The ledger has the postings of the engine's commits, and no others."""
    lake = case.lake
    for statement, posting in sorted(lake.logged - lake.ledger, key=_order):
        yield f"{case.run.table}: the ledger lacks {posting} of {statement} (g)"
    committed = {statement for statement, _ in lake.logged}
    for statement, posting in sorted(lake.ledger - lake.logged, key=_order):
        if statement.version >= lake.first(statement.table):
            why = "no commit of that is in the log" if statement not in committed else "its commit does not"
            yield f"{case.run.table}: the ledger has {posting} of {statement}, and {why} (g)"


def _order(line: Line) -> tuple[object, ...]:
    return *line[0][2:4], *line[0], *line[1][:5]


def check_postings(case: Case) -> Iterator[str]:
    """(b) Each record that a batch has read is accounted for, and Kafka shows as many. What was open is said later, and once."""
    said: Counter[Key] = Counter(posting.key for _, posting in case.lake.lines if posting.start is None and posting.why == "batch")
    last = max((commit.number for commit in case.lake.commits("target", *POSITIONED, "state")), default=(0, 0))
    for statement, posting in case.lake.lines:
        what = f"{case.run.table}: {posting.why} {posting.key[:2]} of {case.named((statement.topic_id, posting.partition))}"
        if statement.topic_id and statement.topic_id not in case.views:
            yield f"{what} names the topic id {statement.topic_id!r}, which no topic of the table had (g)"
        if posting.why != "batch" or posting.start is None or posting.end is None:
            continue
        if posting.target is None and said[posting.key] != 1 and (said[posting.key] or posting.key[:2] != last):
            yield f"{what} is open, and {said[posting.key]} later postings say what became of it (b)"
        yield from _counts(case, statement.topic_id, posting, what)


def _counts(case: Case, topic_id: str, posting: OraclePosting, what: str) -> Iterator[str]:
    assert posting.start is not None and posting.end is not None
    if posting.target is not None and posting.present is not None:
        parts = posting.target[0], posting.present, posting.duplicate, posting.quarantine[0]
        if posting.read != sum(parts) or min(parts) < 0:
            yield f"{what}: read {posting.read} is not inserted, present, duplicate and quarantined {parts} (b)"
    if posting.end - posting.start < posting.read:
        yield f"{what}: read {posting.read} of {posting.end - posting.start} offsets (b)"
    view = case.views.get(topic_id)
    if view is not None and posting.start >= view.begin.get(posting.partition, 0):
        records = sum((posting.partition, offset) in view.records for offset in range(posting.start, posting.end))
        if records != posting.read:
            yield f"{what}: read {posting.read}, Kafka shows {records} committed records in [{posting.start}, {posting.end}) (b)"


def check_batches(case: Case) -> Iterator[str]:
    """(b) Each row and record is inside its batch's range, and (a) no record of an uncommitted batch stays after its range is re-read."""
    lake = case.lake
    for table, held in (("target", lake.target), ("quarantine", lake.quarantine)):
        for position, row in held.items():
            epoch, batch = row.number
            what = f"{case.where(position)}: the {table} names epoch {epoch} batch {batch}"
            if row.number in lake.ranges:
                start, end = lake.ranges[row.number].get(position[:2], (0, 0))
                if not start <= position.offset < end:
                    yield f"{what}, which read [{start}, {end}) there (b)"
            elif table == "target":
                yield f"{what}, and no target commit of that is in the log (b)"
            else:
                yield from _left(lake, position, epoch, f"{what}, and no target commit of that is in the log")


def _left(lake: Lake, position: Position, epoch: int, what: str) -> Iterator[str]:
    """Each later epoch, up to the next one with a batch, must roll it back unless it reads other topics or starts after the record."""
    began: dict[int, bool] = {}
    for commit in lake.commits("target", *POSITIONED):
        if commit.number[0] > epoch:
            starts = commit.starts or {of: start for of, (start, _) in commit.ranges.items()}
            began.setdefault(commit.number[0], 0 <= starts.get(position[:2], -1) <= position.offset)
            if commit.kind == "batch":
                break
    if not began:
        yield f"{what}, and no later epoch has started (g)"
    yield from (f"{what}; epoch {later} reads it again and has not rolled it back (a)" for later, again in began.items() if again)
