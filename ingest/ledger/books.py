"""The books of a table: all postings, from its ledger and from the logs of target and quarantine. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile

from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.our_commits import newest_first
from ingest.delta.posting import NOTHING, Key, Posting, Sums, Why
from ingest.delta.stored_rows import TARGET, hashed_ids, sums_at
from ingest.kafka.intervals import Intervals
from ingest.kafka.offsets import Partition
from ingest.kafka.topic_state import NO_TOPIC, TopicId
from ingest.ledger.ledger_line import Line, OfTable, lines_of
from ingest.ledger.ledger_reader import ledger_lines
from ingest.runtime.places import Places

READ: tuple[Why, ...] = ("batch", "rebuild")
BEGIN: tuple[Why, ...] = ("first", "start", "seek")


@dataclass(frozen=True)
class Books:
    """The lines of a table up to these versions of target and quarantine, and from the newest rebuild on (`rebuilt`: its first epoch).

    Rows of epochs from `rebuilt` to before `rebuilt_until` are one batch: the rebuild's. `former_gaps` are those of earlier epochs. `late`
    is the number of statements, and `differing` the lines of those, that the ledger lacks, or has otherwise than their commits.
    """

    target_version: int
    quarantine_version: int
    lines: tuple[Line, ...]
    rebuilt: int = 0
    rebuilt_until: int = 0
    former_gaps: tuple[Line, ...] = ()
    late: int = 0
    differing: tuple[Line, ...] = ()

    def folded(self, key: Key) -> Key:
        """The key under which the books have the rows of this key."""
        return replace(key, epoch=self.rebuilt, batch=0) if self.rebuilt <= key.epoch < self.rebuilt_until else key

    def of(self, *whys: Why) -> tuple[Line, ...]:
        """The lines of these reasons."""
        return tuple(line for line in self.lines if line.posting.why in whys)

    @cached_property
    def batches(self) -> tuple[Line, ...]:
        """One line for each batch and partition, in order, with what later postings say of it. A rebuild is a batch."""
        return joined(self.of(*READ))

    @cached_property
    def replays(self) -> tuple[Line, ...]:
        """One line for each replay and partition, as `batches`."""
        return joined(self.of("replay"))

    @cached_property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that read, ascending."""
        return tuple(sorted({epoch for line in (*self.of(*BEGIN), *self.batches, *self.replays) for epoch in line.epochs}))

    @cached_property
    def topics(self) -> dict[int, TopicId]:
        """The topics by number, as the newest statement names each."""
        return {line.posting.key.source: line.topic for line in sorted(self.lines, key=lambda line: line.id) if line.topic != NO_TOPIC}

    @cached_property
    def last(self) -> dict[int, int]:
        """The last batch of each epoch."""
        found: dict[int, int] = {}
        for line in self.batches:
            key = line.posting.key
            found[key.epoch] = max(key.batch, found.get(key.epoch, 0))
        return found

    def held(self, table: OfTable) -> dict[Key, Sums]:
        """The sum of all postings on a table by key: what it holds, but for what others have done. Without the keys of `unsettled`."""
        found: dict[Key, Sums] = {}
        for line in self.lines:
            posting = line.posting
            here = posting.target if table == "target" else posting.quarantine
            if here is not None and here:
                found[posting.key] = found.get(posting.key, NOTHING) + here
        return {key: sums for key, sums in found.items() if table == "quarantine" or key not in self.unsettled}

    @cached_property
    def unsettled(self) -> frozenset[Key]:
        """The keys of which nobody can say any more how many rows were added: their files are gone."""
        return frozenset(line.posting.key for line in (*self.batches, *self.replays) if line.posting.is_open)

    @property
    def unposted(self) -> tuple[Line, ...]:
        """The lines that no commit has yet: what the newest batch of Spark's writer added, as its files say."""
        return tuple(line for line in self.lines if line.completes and line.id == line.batch_id)

    def covered(self, of: Partition) -> Intervals:
        """The offsets of a partition in batches and accepted gaps."""
        here = (line for line in (*self.batches, *self.of("gap")) if line.posting.key.of == of)
        return Intervals.of((at.start, at.end) for line in here if (at := line.posting.range) is not None)


def read_books(engine: Engine, places: Places, version: int | None = None) -> Books:
    """Read the ledger, and then the logs: the target's up to `version` (None: the newest), because a run may commit meanwhile.

    Missing tables count as empty. Raises Refused LOG_TORN, and Unreadable.
    """
    logs = Logs.of(places, engine.session)
    stored = ledger_lines(engine, places) if logs.ledger.state() is not None else []
    now = {"target": version_of(logs.target), "quarantine": version_of(logs.quarantine)}
    version = now["target"] if version is None else version
    versions = now | {"target": version}
    # A line beyond the newest version is of a table that was dropped, or put back: its rows are missing.
    kept = _statements(line for line in stored if not versions[line.of_table] < line.version <= now[line.of_table])
    logged: dict[tuple[object, ...], list[Line]] = {}
    for table, log in (("target", logs.target), ("quarantine", logs.quarantine)):
        logged |= _statements(logged_lines(table, log, places.name, -1, versions[table]))  # type: ignore[arg-type]
    differing = [line for at, lines in kept.items() if at in logged and {*lines} != {*logged[at]} for line in logged[at]]
    lines = [line for each in (kept | logged).values() for line in each]
    # The commits themselves must be there: a copy that was put in the table's place has other versions.
    lines += _completing(engine, places, lines, [line for each in logged.values() for line in each], logs.target)
    rebuilds = [line for line in lines if line.posting.why == "rebuild"]
    newest = max(rebuilds, key=lambda line: line.id, default=None)
    first, until = (0, 0) if newest is None else (newest.posting.key.epoch, newest.id.epoch)
    lines.sort(key=lambda line: (line.posting.key, line.id))
    # On a copy that lacks the statement which said what a batch added, another one says it again.
    again = {line.posting: line for line in reversed(lines) if line.completes}
    lines = [line for line in lines if not line.completes or again[line.posting] is line]
    former = tuple(line for line in lines if line.posting.key.epoch < first and line.posting.why == "gap")
    late = len(logged.keys() - kept.keys())
    since = tuple(line for line in lines if line.posting.key.epoch >= first)
    books = Books(version, versions["quarantine"], since, first, until, former, late, tuple(differing))
    # What left the rebuilt table since is posted under the keys of its rows.
    folded = (replace(line, posting=replace(line.posting, key=books.folded(line.posting.key))) for line in since)
    return replace(books, lines=tuple(folded))


def logged_lines(of_table: OfTable, log: DeltaLog, name: str, after: int, version: int) -> Iterator[Line]:
    """The lines of our commits in a log, after one version and up to another, ascending by statement."""
    new = takewhile(lambda found: found[0].version > after, newest_first(log, name))
    found = [lines_of(of_table, *each) for each in new if each[0].version <= version]
    return chain.from_iterable(reversed(found))


def version_of(log: DeltaLog) -> int:
    """The newest version of a table, even if Delta cleaned up its commit; -1 if there is none."""
    state = log.state()
    return -1 if state is None else state.version


def _statements(lines: Iterable[Line]) -> dict[tuple[object, ...], list[Line]]:
    """Lines by statement. One may be there twice: another engine's commit may repeat our metadata, or two processes wrote the ledger."""
    found: dict[tuple[object, ...], dict[tuple[object, ...], list[Line]]] = {}
    for line in lines:
        statement = (line.of_table, line.id, line.writer)
        found.setdefault(statement, {}).setdefault((line.version,), []).append(line)
    return {statement: [*dict.fromkeys(versions[min(versions)])] for statement, versions in found.items()}


def joined(lines: Sequence[Line]) -> tuple[Line, ...]:
    """One line for each key: the one with a range, and what others say of it."""
    found: dict[Key, Line] = {}
    for line in lines:
        before, posting = found.get(line.posting.key), line.posting
        if before is None:
            found[posting.key] = line
            continue
        first, second = (before, line) if before.posting.range is not None else (line, before)
        target, present = second.posting.target, second.posting.present
        found[posting.key] = replace(first, posting=replace(first.posting, target=target, present=present))
    return tuple(found.values())


def _completing(engine: Engine, places: Places, lines: Sequence[Line], logged: Sequence[Line], log: DeltaLog) -> Iterator[Line]:
    """What the newest batches of Spark's writer added: no later commit says it yet."""
    said = {line.posting.key for line in lines if line.completes}
    left = [line for line in logged if line.posting.is_open and line.posting.key not in said]
    if not left or (state := log.state()) is None:
        return
    ids = hashed_ids(state)
    for version in sorted({line.version for line in left}):
        here = [line for line in left if line.version == version]
        try:
            added = added_by(engine, places, version, ids, [line.posting for line in here])
        except Unreadable:
            continue  # VACUUM removed the files: nobody can count any more
        for line, posting in zip(here, added, strict=True):
            yield replace(line, posting=posting)


def added_by(engine: Engine, places: Places, version: int, ids: Sequence[str], opened: Sequence[Posting]) -> list[Posting]:
    """What the commit of this version of the target added, for its open postings, which are all of one batch. Raises Unreadable."""
    epoch, batch = opened[0].key.epoch, opened[0].key.batch
    found = sums_at(engine, At(places.target, version), TARGET, ids, f"`_epoch` = {epoch} AND `_batch` = {batch}")
    return [completing(each, found.get(each.key, NOTHING)) for each in opened]


def completing(opened: Posting, added: Sums) -> Posting:
    """The posting that says what became of an open one: what was offered to the target and not added was present."""
    offered = opened.read - opened.quarantine.rows - opened.duplicate
    return Posting(opened.key, opened.why, target=added, present=offered - added.rows)
