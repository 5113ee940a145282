"""Whether the quarantine still holds what the target's commits prove: RESTORE, REPLACE or a copy put back take records away (I5, I6).

A start remembers beside the checkpoint which table it saw, and at which version; the next one looks only at what came since, and
whether what its own query has put there since is there. A DELETE of rows is somebody's own decision, and `ingest verify` tells of
it; it leaves every commit in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ingest.files import Files
from ingest.places import Places
from ingest.stream.delta_log import Commit, DeltaLog, State
from ingest.stream.in_force import InForce, leaves_out
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.mark import Mark, app_id

FILE = "quarantine.json"
# (topic id, partition) → offset
Starts = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Seen:
    """The quarantine as a start or a rebase saw it and found it whole, or accepted what it lacks."""

    table_id: str
    version: int
    stamp: str = ""

    def followed_by(self, log: DeltaLog, now: State) -> bool:
        """Whether what is there now has grown out of this, as far as the log still tells; a copy of before can have as many versions."""
        known = self.stamp and log.stamp(self.version)
        return self.table_id == now.id and self.version <= now.version and (not known or known == self.stamp)


@dataclass(frozen=True)
class Lost:
    """Records that were in quarantine and are not: how that shows, and where the first of them lie."""

    what: str
    starts: Mapping[tuple[str, int], int] = field(default_factory=dict)


def read_seen(files: Files, state: str) -> Seen | None:
    """What was remembered in the folder `state`; None if nothing can be read: then all of the history is looked at."""
    try:
        told = json.loads(files.read(f"{state}/{FILE}") or b"")
        return Seen(str(told["table_id"]), int(told["version"]), str(told.get("stamp", "")))
    except (ValueError, KeyError, TypeError):
        return None


def write_seen(files: Files, state: str, now: State | None) -> None:
    """Remember the quarantine as it is now."""
    if now is not None and read_seen(files, state) != (seen := Seen(now.id, now.version, now.stamp)):
        files.write(f"{state}/{FILE}", json.dumps(asdict(seen)).encode())


def proven_marks(target: InForce, summary: LedgerSummary) -> list[Mark]:
    """The batches in force that have quarantined records and that the ledger does not know yet."""
    found = []
    for commit in target.commits():
        mark = commit.mark
        if mark is None:
            continue
        if mark.id.number <= summary.last_batch(mark.id.query_id):
            break  # what is older is in the ledger
        if quarantines(mark):
            found.append(mark)
    return found


def quarantines(mark: Mark) -> bool:
    """Whether this batch has put records into quarantine."""
    return any(counts.quarantined for _, counts in mark.counts)


def quarantine_loss(
    log: DeltaLog,
    state: State | None,
    places: Places,
    target: InForce,
    summary: LedgerSummary,
    seen: Seen | None,
    former: Sequence[str] | None,
) -> Lost | None:
    """What the quarantine lacks, if it lacks anything; `former` are the queries before the one whose checkpoint has `seen` it. None where
    the target was put back to before they had ended: batches that were out when it was seen are in force again."""
    followed = seen is not None and state is not None and seen.followed_by(log, state)
    recent = proven_marks(target, summary)
    everything = _starts(summary.quarantined_from, recent)
    settled = seen is not None and followed and former is not None and not any(leaves_out(commit) for commit in log.since(seen.version))
    if settled and state is not None:
        return _behind(log, state, places, _proven(target, summary, recent, former or ()), everything)
    proven = _proven(target, summary, recent)
    if state is not None and (seen is None or followed):
        chain = InForce(log)
        lost = _left_out(log, chain, target, summary, everything) or _jumped_over(log, chain, everything)
        return lost or _never_there(log, chain, places, state, proven, everything)
    if not proven:
        return None
    if state is None:
        return Lost("does not exist", everything)
    assert seen is not None
    if seen.table_id != state.id:
        return Lost(f"has the table id {state.id}, it was {seen.table_id}: it was made anew", everything)
    if seen.version <= state.version:
        return Lost(f"has another version {seen.version} than the one that was seen: a copy was put back, and written to", everything)
    return Lost(f"ends with version {state.version}, it had reached version {seen.version}: a copy was put back", everything)


def _proven(target: InForce, summary: LedgerSummary, recent: Iterable[Mark], without: Sequence[str] = ()) -> dict[str, int]:
    """By query id, but for those `without`, a batch of the target that has put records into quarantine: the last one, as far as ledger
    and log tell. Of an epoch that has ended before the last that the ledger has, it tells the first, and the log which are in force:
    they can be again."""
    proven, beyond = {}, set()
    for query, (first, last) in summary.quarantined.items():
        ended = summary.ended.get(query, last)
        if query not in without and last > ended:
            beyond.add(query)
        if query not in without and first <= ended:
            proven[query] = last if last <= ended else first
    marks = (commit.mark for commit in target.commits()) if beyond else ()
    again = [mark for mark in marks if mark is not None and mark.id.query_id in beyond and quarantines(mark)]
    for mark in (*recent, *again):
        if mark.id.query_id not in without:
            proven[mark.id.query_id] = max(proven.get(mark.id.query_id, -1), mark.id.number)
    return proven


def _behind(log: DeltaLog, state: State, places: Places, proven: Mapping[str, int], everything: Starts) -> Lost | None:
    """Batches that are not there, though nothing was left out since the last look: a copy of later than that, made before they were, was
    put back. What a former checkpoint had put there before the rebase stood at that look, or was accepted then; not so what it put there
    since, nor what a later one had, where the checkpoint was put back too.
    """
    held = {query: state.pairs.get(app_id(places.pipeline, places.table, query, "quarantine"), -1) for query in proven}
    if any(batch > held[query] for query, batch in proven.items()):  # or its pairs have expired
        for commit in InForce(log).commits():
            if commit.mark is not None and commit.mark.id.query_id in held:
                id = commit.mark.id
                held[id.query_id] = max(held[id.query_id], id.number)
    query = next((query for query, batch in proven.items() if batch > held[query]), None)
    if query is None:
        return None
    holds = "none" if held[query] < 0 else f"records up to batch {held[query]}"
    return Lost(f"holds {holds} of query {query}, the target proves batch {proven[query]}: a copy of before was put back", everything)


def _left_out(log: DeltaLog, chain: InForce, target: InForce, summary: LedgerSummary, everything: Starts) -> Lost | None:
    """Commits of the quarantine that are in its log and no longer in force, of batches that the target holds."""
    held = {commit.version for commit in chain.commits()}
    floor = min(held, default=0)
    out = [(c.version, c.mark) for c in log.newest_first() if c.version not in held and c.mark is not None]
    lost = [(version, mark) for version, mark in out if _holds(target, mark, summary)]
    if not lost:
        return None
    by = _leaving_out(chain)
    how = f"version {by.version} ({by.operation})" if by is not None else f"version {floor}"
    version, mark = lost[-1]
    what = f"{how} left out {len(lost)} commits, the first of them version {version}, batch {mark.id.number} of query {mark.id.query_id}"
    # What Delta has cleaned up was left out as well, if not all of before the log is in force: the RESTORE has jumped over some of it.
    unseen = chain.before_the_log() < min(log.versions()) - 1
    return Lost(what, everything if unseen else _starts({}, [mark for _, mark in lost]))


def _jumped_over(log: DeltaLog, chain: InForce, everything: Starts) -> Lost | None:
    """Commits that a RESTORE, REPLACE or overwrite left out and that Delta has cleaned up since: whose they were nobody can tell."""
    by = _leaving_out(chain)
    if by is None or not everything or _all_before_the_log(log, chain):
        return None
    first = min(log.versions(), default=0)
    return Lost(f"version {by.version} ({by.operation}) left out commits that its log, which begins at {first}, no longer has", everything)


def _leaving_out(chain: InForce) -> Commit | None:
    """The newest commit in force that left others out."""
    return next((commit for commit in chain.commits() if leaves_out(commit)), None)


def _all_before_the_log(log: DeltaLog, chain: InForce) -> bool:
    """Whether all that Delta has cleaned from the log is in force, and the log has no gap."""
    return chain.before_the_log() == min(log.versions(), default=0) - 1


def _holds(target: InForce, mark: Mark, summary: LedgerSummary) -> bool:
    """Whether the target has this batch in force."""
    query, number = mark.id.query_id, mark.id.number
    if number <= summary.ended.get(query, summary.last_batch(query)):
        return True
    # A later one too: batches in force have no hole, and the log may no longer have the one that is asked for.
    return any(c.mark is not None and c.mark.id.query_id == query and c.mark.id.number >= number for c in target.commits())


def _never_there(log: DeltaLog, chain: InForce, places: Places, state: State, proven: Mapping[str, int], everything: Starts) -> Lost | None:
    """Batches that the target proves and of which neither the quarantine's log nor its pairs know."""
    held: dict[str, int] = {}
    for commit in chain.commits():
        if commit.mark is not None:
            held.setdefault(commit.mark.id.query_id, commit.mark.id.number)
    # A RESTORE to before the log has jumped over commits that nobody knows any more, and keeps their pairs.
    if _all_before_the_log(log, chain):
        for query in proven:
            pair = state.pairs.get(app_id(places.pipeline, places.table, query, "quarantine"), -1)
            held[query] = max(held.get(query, -1), pair)
    short = {query: batch for query, batch in proven.items() if held.get(query, -1) < batch}
    if not short:
        return None
    query, batch = next(iter(short.items()))
    there = held.get(query, -1)
    return Lost(
        f"holds {'none' if there < 0 else f'records up to batch {there}'} of query {query}, the target proves batch {batch}", everything
    )


def _starts(known: Mapping[tuple[str, int], int], marks: Iterable[Mark]) -> Starts:
    """The first offsets of batches with records in quarantine, by topic id and partition."""
    starts = dict(known)
    for mark in marks:
        counts = dict(mark.counts)
        for each in mark.ranges:
            if each.partition in counts and counts[each.partition].quarantined:
                key = (mark.topic_id, each.partition)
                starts[key] = min(starts.get(key, each.start), each.start)
    return starts
