"""Swap a rebuilt shadow in: the quarantine first, then one overwrite of the target, which also commits the next offsets (I1, I7).

The commit names the first epoch of the shadow, and posts the shadow's books as those of one batch. From then on only the epochs of the
rebuild count; the ledger keeps the earlier ones.

After a crash at any step the same command completes the swap. Between the two overwrites a start is refused with QUARANTINE_REWOUND.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ingest.batch.conflicts import CONFLICT
from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.delta.batch_commit import BatchCommit, BatchId, Swap
from ingest.delta.commit import Commit
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import At, asked
from ingest.delta.our_commits import newest_first
from ingest.delta.posting import Key, Posting, Why
from ingest.delta.table_writer import TableWriter
from ingest.kafka.offsets import OffsetRange, Partition, empty_ranges
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import READ, Books, read_books
from ingest.recovery.epoch import open_epoch
from ingest.recovery.look_back import LookBack
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import Broker, read_start_state
from ingest.repair.shadow import count_rows, is_begun, shadow_of
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.places import Places
from ingest.verify.verdict import Verified, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Swapped:
    """A swap: its epoch, the rows before and after, and the version to which `RESTORE` would go back.

    The new tables lack `lost` rows and records, which the caller allowed. `findings_before` are verify's about the old table.
    """

    epoch: int
    rows_before: int
    rows_after: int
    version_before: int
    lost: int = 0
    findings_before: tuple[str, ...] = ()


def swap(writer: TableWriter, contract: Contract, places: Places, broker: Broker, *, accept_loss: bool = False) -> Swapped:
    """Replace the table's rows and quarantine by the shadow's. The caller holds both locks.

    Raises InvalidInput SHADOW_MISSING, Refused SHADOW_UNBALANCED, SHADOW_BEHIND, SHADOW_OLD, SHADOW_LACKS unless `accept_loss`, and the
    errors of `open_epoch`.
    """
    session, shadow, logs = writer.session, shadow_of(places), Logs.of(places, writer.session)
    books = _checked(session, contract, places)
    first, last = books.epochs[0], books.epochs[-1]
    newest = read_start_state(session, shadow, Logs.of(shadow, session), None).target.newest
    assert newest is not None, "a shadow that balances has offsets"
    if (done := _swapped(logs, places.name, first)) is not None:
        rows = count_rows(session, places, places.target)
        return Swapped(done.id.epoch, rows, rows, done.snapshots.target.version if done.snapshots is not None else 0)
    state = read_start_state(session, places, logs, None)
    _refuse_behind(state, newest.ends, first, places.name)
    counted = logs.target.newest(), logs.quarantine.newest()
    lacking = partial(_refuse_lacking, session, contract, places, newest.sources, accept_loss=accept_loss)
    lost = lacking(counted)
    cut_off = state.quarantine.replaced is not None  # then verify would find this swap's own records
    findings = () if cut_off else tuple(map(str, _verified(session, contract, places).findings))
    # An epoch of its own rolls back a batch that was cut off, so that the swap's epoch has no other statement on the quarantine.
    before = open_epoch(session, contract, places, broker, writer=writer, completes=first)
    before.finish()
    rows_before = count_rows(session, places, places.target)

    def statement(at_end: BatchCommit, look_back: LookBack) -> Commit:
        _refuse_other_numbers(at_end, newest.sources)
        replaced = False
        postings = tuple(_postings(at_end.id, books, first, empty_ranges(newest.ends, newest.read_to)))

        def still() -> BatchCommit:
            nonlocal counted, lost
            snapshots = look_back.again()
            now = snapshots.target.version, counted[1] if replaced else snapshots.quarantine.version
            since = [*logs.target.since(counted[0]), *([] if replaced else logs.quarantine.since(counted[1]))]
            if any(commit.added or commit.removed for commit in since):
                lost = lacking(now)
            counted = now
            reason = f"ingest rebuild --swap{f' --accept-loss: {lost} rows or records' if lost else ''}"
            return replace(at_end, case=Swap(first, reason), snapshots=snapshots, postings=postings)

        writer.overwrite(look_back.quarantine, shadow.quarantine, lambda: replace(still(), postings=()))
        look_back.moved()
        replaced = True
        crash_points.at("swap_quarantine", 0)
        commit = writer.overwrite(look_back.target, shadow.target, still)
        crash_points.at("swap_target", 0)
        return commit

    epoch = open_epoch(session, contract, places, broker, statement=statement, floor=last + 1, writer=writer, completes=first)
    crash_points.at("swap_ledger", 0)
    epoch.finish()
    version_before = before.look_back.snapshots.target.version
    return Swapped(epoch.writer.epoch, rows_before, count_rows(session, places, places.target), version_before, lost, findings)


def refuse_swapped(session: SparkSession | None, places: Places) -> None:
    """Raises Refused SHADOW_OLD if the table has this shadow's rows already."""
    if not is_begun(session, places):
        return
    first = asked(places.lake, session, lambda engine: read_books(engine, shadow_of(places))).epochs[0]
    if (done := _swapped(Logs.of(places, session), places.name, first)) is not None:
        raise Refused(
            "SHADOW_OLD",
            f"the shadow of {places.name} was swapped in as epoch {done.id.epoch}, and the swap was cut off before its end.",
            expected="a swap that is complete.",
            remedy=f"`ingest rebuild {places.name} --swap` completes it. Then rebuild again, if you still want to.",
        )


def _refuse_other_numbers(at_end: BatchCommit, sources: Sequence[TopicId]) -> None:
    """Raises Refused SHADOW_OLD if a number means another topic in the table than in its shadow: both have found new ones since."""
    if len(at_end.sources) < len(sources) or not all(now.is_same(then) for now, then in zip(at_end.sources, sources, strict=False)):
        raise Refused(
            "SHADOW_OLD",
            f"{at_end.name} numbers its topics {', '.join(each.name for each in at_end.sources)}, but its shadow "
            f"{', '.join(each.name for each in sources)}: topics were added since it was begun.",
            expected="a shadow that numbers the topics as the table does.",
            remedy=f"`ingest rebuild {at_end.name} --restart` builds it anew.",
        )


def _refuse_behind(before: StartState, ends: Mapping[Partition, int], first: int, name: str) -> None:
    """Raises Refused SHADOW_BEHIND and SHADOW_OLD."""
    own = before.target.newest
    behind = [(of, end) for of, end in sorted(own.ends.items()) if ends.get(of, 0) < end] if own is not None else []
    if own is not None and own.id.epoch >= first:  # a swap was cut off, and a start has gone on since
        raise Refused(
            "SHADOW_OLD",
            f"{name} has written in epoch {own.id.epoch}, but its shadow begins with epoch {first}.",
            expected="a shadow that was begun after the table's newest epoch.",
            remedy=f"`ingest rebuild {name} --restart` builds it anew.",
        )
    if own is not None and behind:
        raise Refused(
            "SHADOW_BEHIND",
            f"{name} has read further than its shadow: up to {' '.join(f'{_typed(own.sources, of)}:{end}' for of, end in behind)}.",
            expected="a shadow that has read at least as far as the table.",
            remedy=f"stop the table's run, then `ingest rebuild {name}` again: it reads on.",
        )


def _refuse_lacking(
    session: SparkSession | None,
    contract: Contract,
    places: Places,
    sources: Sequence[TopicId],
    versions: tuple[int, int],
    *,
    accept_loss: bool,
) -> int:
    """How many rows and open records of these versions of target and quarantine the shadow lacks.

    It has a row by event id, or in its quarantine by position, and a record by position in one of its tables. Conflicting duplicates are
    left out: under another contract one may be a duplicate. Kafka has expired or compacted what it lacks, or somebody added the rows by
    hand. Raises Refused SHADOW_LACKS if there are any.
    """
    shadow = shadow_of(places)
    same = " AND ".join(f"r.`{name}` = s.`{name}`" for name in event_id_columns(contract))
    found = (
        f"SELECT r._source AS s, r._partition AS p, r._offset AS o FROM {{rows}} r LEFT ANTI JOIN {{there}} s ON {same} "
        "LEFT ANTI JOIN {records} q ON r._source = q.source AND r._partition = q.`partition` AND r._offset = q.`offset` "
        "UNION ALL SELECT k.source AS s, k.`partition` AS p, k.`offset` AS o FROM {kept} k "
        "LEFT ANTI JOIN {there} s ON k.source = s._source AND k.`partition` = s._partition AND k.`offset` = s._offset "
        "LEFT ANTI JOIN {records} q ON k.source = q.source AND k.`partition` = q.`partition` AND k.`offset` = q.`offset` "
        f"WHERE k.state = 'open' AND k.reason_code <> '{CONFLICT}'"
    )
    tables = {"rows": At(places.target, versions[0]), "there": At(shadow.target), "records": At(shadow.quarantine)}
    tables["kept"] = At(places.quarantine, versions[1])

    def asked_for(sql: str) -> list[dict[str, Any]]:
        return asked(places.lake, session, lambda engine: engine.ask(sql, **tables))

    lost = int(asked_for(f"SELECT count(*) AS n FROM ({found}) f")[0]["n"])
    if lost and not accept_loss:
        rows = asked_for(f"SELECT s, p, o FROM ({found}) f ORDER BY s, p, o LIMIT 5")
        some = ", ".join(f"{_typed(sources, (row['s'], row['p']))}:{row['o']}" for row in rows)
        raise Refused(
            "SHADOW_LACKS",
            f"{lost:,} rows and quarantined records of {places.name} are not in its shadow, such as those at {some} (partition:offset): "
            "Kafka has expired or compacted their records since the shadow was begun, or somebody added the rows by hand.",
            expected="a shadow with every event id of the table, and every open record of its quarantine.",
            remedy=f"`ingest compare {places.target} {shadow.target}` shows them. `ingest rebuild {places.name} --restart` takes over what "
            "Kafka has expired; if the rest may go, --swap --accept-loss.",
        )
    return lost


def _typed(sources: Sequence[TopicId], of: Partition) -> str:
    """A partition, with its topic if the table has read several. A row that somebody added may be of none of them."""
    if len(sources) == 1:
        return str(of[1])
    return f"{sources[of[0]].name if of[0] < len(sources) else of[0]}/{of[1]}"


def _verified(session: SparkSession | None, contract: Contract, places: Places) -> Verified:
    return asked(places.lake, session, lambda engine: verify(engine, contract, places))


def _swapped(logs: Logs, name: str, first: int) -> BatchCommit | None:
    """The BatchCommit of the swap of this shadow, if the table has it already."""
    return next((each for _, each in newest_first(logs.target, name, Swap) if each.case.first == first), None)  # type: ignore[union-attr]


def _postings(at: BatchId, books: Books, first: int, starts: Sequence[OffsetRange]) -> Iterator[Posting]:
    """The shadow's books as those of one batch of its first epoch, and where the table goes on."""
    for goes_on in starts:
        yield Posting(Key(at.epoch, at.number, *goes_on.of), "start", goes_on)
    # Where the shadow has read nothing, because Kafka has nothing left, the books begin anew, too.
    sums: dict[tuple[Why, Partition], Posting] = {("rebuild", at.of): Posting(Key(first, 0, *at.of), "rebuild", at) for at in starts}
    for line in (*books.batches, *books.replays, *books.of("gap", "retention", "erasure", "write-off")):
        each = line.posting
        if each.why == "gap":
            yield replace(each, key=Key(at.epoch, at.number, *each.key.of))
            continue
        why: Why = "rebuild" if each.why in READ else each.why
        key = Key(first, 0, *each.key.of)
        before = sums.get((why, key.of), Posting(key, why))
        assert before.target is not None and each.target is not None, "a shadow that balances knows its rows"
        offsets = None
        if why == "rebuild" and each.range is not None:
            known = each.range if before.range is None else before.range
            ends = min(known.start, each.range.start), max(known.end, each.range.end)
            offsets = OffsetRange(key.partition, *ends, source=key.source)
        sums[why, key.of] = Posting(
            *(key, why, offsets, before.read + each.read, before.target + each.target, before.quarantine + each.quarantine),
            *((before.present or 0) + (each.present or 0), before.duplicate + each.duplicate),
        )
    yield from sums.values()


def _checked(session: SparkSession | None, contract: Contract, places: Places) -> Books:
    """Verify the shadow; returns its books. Raises InvalidInput SHADOW_MISSING and Refused SHADOW_UNBALANCED."""
    shadow = shadow_of(places)
    if not is_begun(session, places):
        raise InvalidInput(
            "SHADOW_MISSING",
            f"there is no complete shadow of {places.name} at {shadow.root}.",
            expected="a shadow that `ingest rebuild` has filled.",
            remedy=f"`ingest rebuild {places.name}`, then compare, then --swap.",
        )
    found = _verified(session, contract, shadow)
    # The shadow's own log explains these; the table's books, as those of one batch, could not.
    deleted = (f"version {each.version} of its {each.table} is a DELETE of {each.rows} rows" for each in found.deletes)
    cut_off = (f"epoch {each.epoch} batch {each.batch} was cut off before its rows were committed" for each in found.uncommitted)
    unsettled = (f"nobody can say how many rows epoch {key.epoch} batch {key.batch} added" for key in sorted(found.books.unsettled))
    if wrong := next(iter((*map(str, found.findings), *deleted, *cut_off, *unsettled)), None):
        raise Refused(
            "SHADOW_UNBALANCED",
            f"the shadow of {places.name} does not balance: {wrong}.",
            expected="a shadow that `ingest verify` would pass, without a DELETE and a batch in progress.",
            remedy=f"`ingest rebuild {places.name}` reads on after a batch that was cut off; --restart builds it anew.",
        )
    return found.books
