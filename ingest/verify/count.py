"""Compare what target and quarantine hold with the books: found = sum of all postings - what others deleted (I4). Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingest.decode.row_hash import Hashes
from ingest.delta.batch_commit import FIRST_BATCH
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine, Unreadable
from ingest.delta.posting import NOTHING, Key, Sums
from ingest.delta.stored_rows import QUARANTINE, TARGET, Columns, hashed_ids, positions, sums_at
from ingest.kafka.intervals import EMPTY, Intervals
from ingest.ledger.books import Books
from ingest.ledger.ledger_line import Line, OfTable
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.balance import Finding, finding, named
from ingest.verify.deletions import Removed, explain

# The first broken ids lead to the cause; a list of a thousand helps nobody.
SHOWN_MAX = 20


@dataclass(frozen=True)
class TableRows:
    """The balance of the rows in one table: found = put - removed - retired - written_off - missing + surplus + uncommitted.

    `put` rows are those that batches, replays and a rebuild put there. DELETE commits took the `removed` ones, retention or an erasure the
    `retired` ones. `written_off` rows were missing when a seek read the tables: what came back belongs to later batches. `missing` and
    `surplus` rows are findings. Only a quarantine has `uncommitted` ones.
    """

    put: int
    removed: int
    written_off: int
    missing: int
    surplus: int
    uncommitted: int
    found: int
    retired: int = 0

    @property
    def less(self) -> dict[str, int]:
        """The rows that are no longer there, by why."""
        found = {"removed": self.removed, "removed by retention or erasure": self.retired}
        return {**found, "written off by a seek": self.written_off, "missing": self.missing}

    @property
    def more(self) -> dict[str, int]:
        """The rows beyond those that batches put there, by why."""
        return {"too many": self.surplus, "uncommitted": self.uncommitted}


@dataclass(frozen=True)
class Held:
    """One table at a version against the books.

    `found` are the sums of all its rows. `wrong` is by key what the books have more than the table (negative: less), and nobody explains.
    `strays` are the rows of batches that the books do not know, `uncommitted` those of them that a batch in progress, or one that was cut
    off, may have put there. `removed` are the DELETE commits that explain the rest.
    """

    name: OfTable
    at: At
    columns: Columns
    found: Mapping[Key, Sums]
    wrong: Mapping[Key, Sums]
    strays: Mapping[Key, Sums]
    uncommitted: Mapping[Key, Sums]
    removed: tuple[Removed, ...]

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(each.rows for each in self.found.values())

    @property
    def missing(self) -> dict[Key, Sums]:
        """The keys that lack rows, or have others than theirs."""
        return {key: each for key, each in self.wrong.items() if each.rows >= 0}


@dataclass(frozen=True)
class Account:
    """Target and quarantine against the books of one table. `lines` are those of its batches and replays, by key."""

    books: Books
    target: Held
    quarantine: Held
    lines: Mapping[Key, Line]

    def rows(self, name: OfTable) -> TableRows:
        """The balance of a table."""
        held = self.target if name == "target" else self.quarantine
        by_why: dict[str, int] = {}
        for line in self.books.lines:
            sums = line.posting.target if name == "target" else line.posting.quarantine
            if sums is not None and line.posting.key in self.lines:
                by_why[line.posting.why] = by_why.get(line.posting.why, 0) + sums.rows
        put = sum(by_why.get(why, 0) for why in ("batch", "replay", "rebuild")) + (self._unsettled if name == "target" else 0)
        missing = sum(max(0, each.rows) for each in held.wrong.values())
        stray = sum(each.rows for each in held.strays.values())
        surplus = sum(max(0, -each.rows) for each in held.wrong.values()) + stray
        removed, uncommitted = (sum(each.rows for each in group) for group in (held.removed, held.uncommitted.values()))
        retired, written_off = -by_why.get("retention", 0) - by_why.get("erasure", 0), -by_why.get("write-off", 0)
        if written_off < 0:  # a RESTORE has brought back what had been removed
            retired, written_off = retired + written_off, 0
        return TableRows(put, removed, written_off, missing, surplus, uncommitted, held.rows, retired)

    @property
    def expected_rows(self) -> int:
        """The number of rows that the target should contain: those that the books have, but for what others deleted."""
        held = sum(each.rows for key, each in self.books.held("target").items() if key in self.lines)
        return held + self._unsettled - sum(each.rows for each in self.target.removed)

    @property
    def _unsettled(self) -> int:
        """The rows of batches of which nobody can say any more how many they were."""
        return sum(each.rows for key, each in self.target.found.items() if key in self.books.unsettled)

    def findings(self, engine: Engine) -> Iterator[Finding]:
        """Missing, surplus and other rows by batch and partition, and rows of no batch. Raises Unreadable."""
        for held in (self.target, self.quarantine):
            for number, (key, wrong) in enumerate(sorted(held.wrong.items())):
                places = _places(engine, held, self.lines[key]) if number < SHOWN_MAX else ""
                what = _words(held.name, wrong, places)
                yield finding("ROWS_DIFFER" if held is self.target else "QUARANTINE_DIFFERS", self.lines[key], what, self.books)
            if held.strays:
                each = (
                    f"epoch {key.epoch} batch {key.batch} {named(self.books, key.of)}: {sums.rows}"
                    for key, sums in [*held.strays.items()][:SHOWN_MAX]
                )
                more = "; …" if len(held.strays) > SHOWN_MAX else ""
                yield Finding(
                    "ROWS_OF_NO_BATCH", f"the {held.name} contains rows that no batch in ledger or log put there: {'; '.join(each)}{more}"
                )


def account(engine: Engine, places: Places, books: Books, hashes: list[Hashes] | None = None) -> Account:
    """Add up the target and the quarantine at the versions of the books. A missing table counts as empty. Raises Unreadable.

    `hashes` gets those of the target's event ids, without a JVM.
    """
    state = DeltaLog(files_of(places.lake, engine.session), places.target).state()
    ids = hashed_ids(state) if state is not None else ()
    # Where a rebuild has carried rows over, both have its key: only the batch says which offsets it has read.
    lines = {line.posting.key: line for line in (*books.replays, *books.batches)}
    target = _held(engine, books, "target", At(places.target, books.target_version), TARGET, ids, lines, hashes)
    quarantine = _held(engine, books, "quarantine", At(places.quarantine, books.quarantine_version), QUARANTINE, (), lines)
    return Account(books, target, quarantine, lines)


def _held(
    engine: Engine,
    books: Books,
    name: OfTable,
    at: At,
    columns: Columns,
    ids: Sequence[str],
    lines: Mapping[Key, Line],
    hashes: list[Hashes] | None = None,
) -> Held:
    found: dict[Key, Sums] = {}
    for row_key, sums in (sums_at(engine, at, columns, ids, kept=hashes) if at.version != -1 else {}).items():
        key = books.folded(row_key)
        found[key] = found.get(key, NOTHING) + sums
    put, unsettled = books.held(name), books.unsettled if name == "target" else frozenset()
    # The books may lack batches that Delta's log and the ledger have lost. What was removed of them says nothing.
    wrong = {key: each for key in lines.keys() - unsettled if (each := put.get(key, NOTHING) - found.get(key, NOTHING))}
    unknown = {key: sums for key, sums in found.items() if key not in lines}
    strays = {key: sums for key, sums in unknown.items() if name == "target" or not _may_be_uncommitted(key, books)}
    since = {key: line.version if name == "target" else 0 for key, line in lines.items()}
    removed = explain(engine, name, at, columns, ids, wrong, since, books)
    return Held(name, at, columns, found, wrong, strays, {key: unknown[key] for key in unknown.keys() - strays.keys()}, tuple(removed))


def _may_be_uncommitted(key: Key, books: Books) -> bool:
    """Whether a batch with quarantined records only may be in progress or cut off: it follows its epoch's last batch, or is the newest."""
    newest = max(books.last.items(), default=(0, 0))
    return (key.epoch, key.batch) > newest or key.batch == books.last.get(key.epoch, FIRST_BATCH - 1) + 1


def _words(table: str, wrong: Sums, places: str) -> str:
    place = "the target" if table == "target" else "quarantine"
    if wrong.rows > 0:
        return f"put rows into {place} of which {wrong.rows} are missing without a DELETE{places}"
    if wrong.rows < 0:
        return f"has {-wrong.rows} rows more in {place} than it put there{places}"
    return f"has other rows in {place} than it put there{places}"


def _places(engine: Engine, held: Held, line: Line) -> str:
    """The offsets of what is missing and of what is too much, where the batch's own version can still be read."""
    key, columns = line.posting.key, held.columns
    if key.batch == 0 or line.of_table != held.name:  # a rebuild's rows are of many batches
        return ""
    of_key = zip(columns.position, (key.epoch, key.batch, key.source, key.partition), strict=False)
    where = " AND ".join(f"`{column}` = {value}" for column, value in of_key)
    try:
        then, now = (
            Intervals.of_offsets(positions(engine, At(held.at.path, version), columns, where).get(key.of, ()))
            for version in (line.version, held.at.version)
        )
    except Unreadable:
        return ""
    missing, more = then.minus(now), now.minus(then)
    shown = [f"{what} {_shown(offsets)}" for what, offsets in (("missing", missing), ("too much", more)) if offsets != EMPTY]
    return f" ({'; '.join(shown)})" if shown else ""


def _shown(offsets: Intervals) -> str:
    ranges = [f"[{start}, {end})" for start, end in offsets]
    return " ".join(ranges[:SHOWN_MAX]) + (" …" if len(ranges) > SHOWN_MAX else "")
