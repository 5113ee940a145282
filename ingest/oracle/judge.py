"""The oracle: judges a finished run from outside, by the manifests, Kafka and the Delta tables alone; its checks are (a) to (g).

It imports nothing of the engine, so that a wrong idea in the engine cannot also be the judge's. A run must be quiet: stopped,
or nothing more to read, and its ledger completed. Tables of mode insert only: a row, once there, stays as it is.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from ingest.oracle import versions
from ingest.oracle.case import Case, Run, Verdict
from ingest.oracle.log import check_gaps, check_ledger, check_log
from ingest.oracle.order import check_order
from ingest.oracle.rebases import check_rebases
from ingest.oracle.sources import EventId, KafkaView, read_kafka, read_manifests
from ingest.oracle.tables import Lake, Position

__all__ = ["Run", "Verdict", "judge", "judge_live"]

FINDINGS_A_CHECK_MAX: Final = 20


def judge_live(run: Run, bootstrap_servers: str) -> Verdict:
    """Judge against a real broker."""
    return judge(run, read_kafka(bootstrap_servers, run.topic, run.id_columns, run.payload_columns))


def judge(run: Run, kafka: KafkaView) -> Verdict:
    """Judge against a given view of Kafka."""
    lake = Lake.read(run.folder, run.id_columns, run.payload_columns)
    case = Case(run, kafka, read_manifests(run.manifests, run.topic), lake)
    findings: list[str] = []
    for check in CHECKS:
        found = check(case)
        findings.extend(islice(found, FINDINGS_A_CHECK_MAX))
        more = sum(1 for _ in found)
        findings.extend([f"{run.table}: … and {more} more of {check.__name__}"] if more else [])
    return Verdict(tuple(findings), tuple(case.notes))


def check_ids(case: Case) -> Iterator[str]:
    """(a) The ids of committed transactions, less those whose every copy is quarantined, are in the table, each once."""
    table, lake, manifest = case.run.table, case.lake, case.manifest
    for event_id, count in lake.target_ids.items():
        if count > 1:
            yield f"{table}: id {event_id} is in the target {count} times (a)"
    visible: dict[EventId, list[Position]] = defaultdict(list)
    for view in case.views.values():
        for (partition, offset), record in view.records.items():
            if record.event_id is not None:
                visible[record.event_id].append(Position(view.topic_id, partition, offset))
    whole = not any(begin for view in case.views.values() for begin in view.begin.values())
    for event_id in manifest.committed.keys() - visible.keys() - case.run.excused_ids if whole else ():
        yield f"{table}: id {event_id} was committed and Kafka does not show it: manifest and topic do not belong together (a)"
    for event_id in manifest.committed.keys() | visible.keys():
        if event_id in lake.target_ids or event_id in case.run.excused_ids:
            continue
        copies = visible.get(event_id)
        if copies is None:
            if event_id not in lake.quarantine_ids:
                yield f"{table}: id {event_id} was committed, is no longer in Kafka and is neither in target nor in quarantine (a)"
        elif open_copies := [p for p in copies if lake.quarantine.get(p) not in {"open", "dropped"}]:
            first = open_copies[0]
            yield f"{case.where(first)}: id {event_id} was committed and is lost: not in the target, and this copy not in quarantine (a)"
    produced = manifest.committed.keys() | visible.keys() | manifest.poison_ids.keys()
    # Once records expired, an unknown transaction cannot be settled by looking into Kafka.
    possible = produced if whole else produced | manifest.unknown.keys()
    if manifest.given or whole:
        for event_id in lake.target_ids.keys() - possible - manifest.aborted_only:
            yield f"{table}: id {event_id} is in the target and nobody produced it (a)"
    for event_id, kind in manifest.poison_ids.items():
        if kind in case.run.refused_kinds and event_id in lake.target_ids:
            yield f"{table}: id {event_id} is in the target, and its record was broken ({kind}) (a)"


def check_positions(case: Case) -> Iterator[str]:
    """(b) Every record is in exactly one of target and quarantine, or its id is in the target at another position."""
    lake, views = case.lake, case.views
    settled = lake.target_ids.keys() | case.run.excused_ids
    for position, count in lake.doubled_positions.items():
        yield f"{case.where(position)} is in the target {count} times (b)"
    for position, count in lake.quarantine_doubled.items():
        yield f"{case.where(position)} is in the quarantine {count} times (b)"
    for position, record in ((Position(v.topic_id, p, o), record) for v in views.values() for (p, o), record in v.records.items()):
        held, state = lake.target.get(position), lake.quarantine.get(position)
        if held is not None and state in {"open", "dropped"}:
            yield f"{case.where(position)}: id {held[0]} is in the target and, {state}, in the quarantine (b)"
        if state is not None and not case.run.valid_in_quarantine and case.manifest.given and record.event_id is not None:
            valid = case.manifest.committed.get(record.event_id) or case.manifest.unknown.get(record.event_id) or set()
            if record.value_hash in valid:
                yield f"{case.where(position)}: id {record.event_id} is a valid event and in the quarantine (b)"
        if position in lake.quarantine_values and lake.quarantine_values[position] != record.value_hash:
            yield f"{case.where(position)} is in the quarantine with other bytes than Kafka holds there (b)"
        if record.event_id is None:
            if held is not None:
                yield f"{case.where(position)}: no id can be read from the record, and the target holds it as {held[0]} (b)"
            elif state not in {"open", "dropped"}:
                yield f"{case.where(position)}: no id can be read from the record, and it is not in the quarantine: dropped (b)"
        elif held is None and state not in {"open", "dropped"} and record.event_id not in settled:
            yield f"{case.where(position)}: id {record.event_id} is in neither target nor quarantine nor elsewhere in the target (b)"
    for name, positions in (("target", lake.target), ("quarantine", lake.quarantine)):
        for position in positions:
            view = views.get(position.topic_id)
            if view is None:
                continue
            begin, end = view.begin.get(position.partition, 0), view.end.get(position.partition, 0)
            if position.offset >= begin and (position.partition, position.offset) not in view.records:
                yield f"{case.where(position)} is in the {name}, and no committed record is there (aborted, marker, past the end {end}) (b)"
    for name, positions in (("target", lake.target), ("quarantine", lake.quarantine)):
        for topic_id, count in sorted(Counter(p.topic_id for p in positions if p.topic_id not in views).items()):
            yield f"{case.run.table}: {count} rows of the {name} name the topic id {topic_id!r}, which no topic of this name had (b)"


def check_aborted(case: Case) -> Iterator[str]:
    """(c) Ids that occur in aborted transactions only are absent, also from the quarantine."""
    for event_id in case.manifest.aborted_only:
        if event_id in case.lake.target_ids:
            yield f"{case.run.table}: id {event_id} comes from an aborted transaction and is in the target (c)"
        if event_id in case.lake.quarantine_ids:
            yield f"{case.run.table}: id {event_id} comes from an aborted transaction and is in the quarantine (c)"


def check_payloads(case: Case) -> Iterator[str]:
    """(d) A row carries the id and the payload of the record at its position, and that record is one the producer sent."""
    unread = 0
    for position, (event_id, payload) in case.lake.target.items():
        record = case.record(position)
        if record is None:
            unread += 1
            continue
        if record.event_id != event_id:
            yield f"{case.where(position)} holds id {event_id}, Kafka holds {record.event_id} there (d)"
            continue
        updated = case.run.updated.get(event_id, {})
        for column, stored, sent in zip(case.run.payload_columns, payload, record.payload, strict=True):
            if not _same(stored, updated.get(column, sent)):
                what = f"the test's UPDATE left {updated[column]!r}" if column in updated else f"{sent!r} was produced"
                yield f"{case.where(position)}: id {event_id} has {column} = {stored!r}, and {what} (d)"
        sent_hashes = case.manifest.committed.get(event_id, set()) | case.manifest.unknown.get(event_id, set())
        if sent_hashes and record.value_hash not in sent_hashes and event_id not in case.manifest.poison_ids:
            yield f"{case.where(position)}: id {event_id} has a payload in Kafka that no manifest names (d)"
    if unread:
        case.notes.append(f"{case.run.table}: the payload of {unread} rows cannot be compared, Kafka does not show their records")


def check_versions(case: Case) -> Iterator[str]:
    """(e) Every version of the target is a prefix by whole batches; a commit of the quarantine is of one batch."""
    yield from versions.findings(case.run.table, case.lake, case.run.own_versions, case.notes, case.run.id_columns)
    yield from versions.quarantine_findings(case.run.table, case.lake, case.run.own_quarantine_versions, case.notes)


def _same(stored: Any, sent: Any) -> bool:
    if stored is None or sent is None:
        return stored is None and sent is None
    if isinstance(stored, bool) or isinstance(sent, bool):
        return stored is sent
    if isinstance(stored, dt.datetime):
        try:
            moment = dt.datetime.fromisoformat(str(sent))
        except ValueError:
            return False
        return stored == (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
    if isinstance(stored, float):
        return stored == float(sent)
    if isinstance(stored, Decimal) and isinstance(sent, str):
        return bool(re.fullmatch(r"-?\d+(\.\d+)?", sent)) and stored == Decimal(sent)  # many send money as text; a contract takes it
    if isinstance(stored, int | Decimal):
        return not isinstance(sent, str | dict | list) and Decimal(stored) == Decimal(sent)
    return bool(stored == sent)


CHECKS: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    check_ids,
    check_positions,
    check_aborted,
    check_payloads,
    check_log,
    check_versions,
    check_order,
    check_gaps,
    check_ledger,
    check_rebases,
)
