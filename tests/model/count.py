"""The books and the count of `ingest verify`: the engine's own functions, on the model's tables in place of Delta's (I4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ingest.delta.batch_commit import Batch, BatchCommit, Seek
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import Unreadable
from ingest.delta.posting import Key, Posting, Sums
from ingest.kafka.intervals import Intervals
from ingest.ledger import books
from ingest.ledger.ledger_line import Line
from ingest.ledger.projection import unwritten
from ingest.verify import balance, count, deletions
from ingest.verify.count import Account
from ingest.verify.coverage import Coverage, covered
from tests.model.delta import NAME, PIPELINE, TABLES, Log, Table, Version
from tests.model.kafka import Topic

Tables = list[Table | None]
PLACES: Any = SimpleNamespace(
    name=f"{PIPELINE}.{NAME}", pipeline=PIPELINE, table=NAME, lake="", target="target", quarantine="quarantine", ledger="ledger"
)
ENGINE: Any = SimpleNamespace(session=None)


def logs(tables: Tables) -> Logs:
    """The three logs."""
    return Logs(*(Log(tables, which) for which in range(3)))  # type: ignore[arg-type]


@contextmanager
def storage(tables: Tables) -> Iterator[None]:
    """Inside, the engine's functions read these tables. Only what would ask Delta and SQL is modelled."""

    def sums_at(_: Any, at: Any, *__: Any, **___: Any) -> Mapping[Key, Sums]:
        table = tables[TABLES.index(at.path)]
        if table is None:
            return {}
        version = len(table.versions) - 1 if at.version is None else at.version
        if not table.log_from <= version < len(table.versions):
            raise Unreadable(f"version {version} of {at.path}")
        return table.versions[version].sums()

    def log(_: Any, path: str) -> Log:
        return Log(tables, TABLES.index(path))

    ledger = tables[2]
    there = {
        (books, "Logs"): SimpleNamespace(of=lambda *_: logs(tables)),
        (books, "ledger_lines"): lambda *_: list(ledger.newest.rows if ledger is not None else ()),
        **{(module, "sums_at"): sums_at for module in (books, count, deletions)},
        **{(module, "hashed_ids"): lambda _: () for module in (books, count)},
        **{(module, "DeltaLog"): log for module in (count, deletions)},
        **{(module, "files_of"): lambda *_: None for module in (count, deletions)},
    }
    before = {place: getattr(*place) for place in there}
    for place, value in there.items():
        setattr(*place, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


def counted(tables: Tables) -> Account:
    """The tables against their books."""
    with storage(tables):
        return count.account(ENGINE, PLACES, books.read_books(ENGINE, PLACES))


def coverage(tables: Tables, numbers: Collection[int]) -> Coverage:
    """The coverage of these topics, for a seek."""
    return covered(counted(tables), numbers)


def added_by(tables: Tables, version: int | None, opened: tuple[Posting, ...]) -> list[Posting]:
    """What a commit of Spark's writer added, for its open postings."""
    with storage(tables):
        return books.added_by(ENGINE, PLACES, version, (), opened) if opened and version is not None else []


def lacking(tables: Tables) -> list[Line]:
    """The lines that the ledger lacks."""
    return unwritten(logs(tables), PLACES.name)[0]


def batch_commits(table: Table | None) -> Iterator[tuple[Version, BatchCommit]]:
    """Batches and seeks in a table's log, oldest first, even if a RESTORE reverted them."""
    for version in table.versions[table.log_from :] if table is not None else ():
        if version.batch_commit is not None and isinstance(version.batch_commit.case, Batch | Seek):
            yield version, version.batch_commit


def unsaid(tables: Tables) -> list[str]:
    """The batches in the log of which no later statement, or more than one, says what they added."""
    log = tables[0].versions[tables[0].log_from :] if tables[0] is not None else []
    commits = (version.batch_commit for version in log if version.batch_commit is not None)
    said = Counter(each.key for commit in commits for each in commit.postings if each.range is None and each.why == "batch")
    told = {(line.posting.key, line.id) for line in counted(tables).books.lines if line.completes}
    opened = [(each.key, batch_commit.id) for _, batch_commit in batch_commits(tables[0]) for each in batch_commit.opened]
    found = [f"{key} stays open" for key, of in opened if not any(key == other and of != id for other, id in told)]
    return [*found, *(f"{key} is said {said[key]} times" for key, _ in opened if said[key] > 1)]


def findings(tables: Tables, topics: Sequence[Topic]) -> list[str]:
    """The findings of verify when all drivers have ended."""
    account = counted(tables)
    said = [str(each) for each in balance.check(account.books)]
    for held in (account.target, account.quarantine):
        said += [f"{held.name}, {key}: {wrong} is missing" for key, wrong in held.wrong.items()]
        said += [f"{held.name}, {key}: rows of no batch" for key in held.strays]
    for topic in topics:
        numbers = [number for number, each in account.books.topics.items() if each.id == topic.id]
        whole = covered(account, numbers)
        for of in ((number, p) for number in numbers for p in range(len(topic.partitions))):
            end = len(topic.partitions[of[1]])
            if of in whole.begins and whole.first_missing(of) < end:
                said.append(f"partition {of} is not complete at {whole.first_missing(of)}: {Intervals.of([(0, end)])}")
    return said
