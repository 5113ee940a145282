"""The oracle's verdict, from its checks (a) to (g).

The run must be at rest: stopped, or with nothing left to read, and with a complete ledger. The oracle judges only tables of mode
insert, whose rows never change.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from ingest.lab.oracle.case import Case, JudgedRun, OracleVerdict
from ingest.lab.oracle.oracle_ledger import check_batches, check_ledger, check_postings, check_sums
from ingest.lab.oracle.oracle_log import check_gaps, check_log, check_sources
from ingest.lab.oracle.oracle_tables import Lake, Position
from ingest.lab.oracle.sources import EventId, KafkaView, read_kafka, read_manifests
from ingest.lab.oracle.versions import check_order, check_versions

__all__ = ["JudgedRun", "OracleVerdict", "judge", "judge_live"]

FINDINGS_A_CHECK_MAX: Final = 20


def judge_live(run: JudgedRun, bootstrap_servers: str) -> OracleVerdict:
    """Judge a run against its topics on a real broker."""
    return judge(run, *(read_kafka(bootstrap_servers, topic, run.id_columns, run.payload_columns) for topic in run.topics))


def judge(run: JudgedRun, *kafka: KafkaView) -> OracleVerdict:
    """Judge a run against given views of its topics; each check reports FINDINGS_A_CHECK_MAX findings at most."""
    lake = Lake.read(run.folder, run.id_columns, run.payload_columns)
    case = Case(run, kafka, read_manifests(run.manifests, *run.topics), lake)
    findings: list[str] = []
    for check in CHECKS:
        found = check(case)
        findings.extend(islice(found, FINDINGS_A_CHECK_MAX))
        more = sum(1 for _ in found)
        findings.extend([f"{run.table}: … and {more} more of {check.__name__}"] if more else [])
    return OracleVerdict(tuple(findings), tuple(case.notes))


def check_ids(case: Case) -> Iterator[str]:
    """(a) Every id of a committed transaction is in the target exactly once, unless all its copies are in quarantine."""
    table, lake, manifest = case.run.table, case.lake, case.manifest
    for event_id, count in lake.target_ids.items():
        if count > 1:
            yield f"{table}: id {event_id} is in the target {count} times (a)"
    visible: dict[EventId, list[Position]] = defaultdict(list)
    for position, record in case.records.items():
        if record.event_id is not None:
            visible[record.event_id].append(position)
    whole = not any(begin for view in case.views.values() for begin in view.begin.values())
    for event_id in manifest.committed.keys() - visible.keys() - case.run.excused_ids if whole else ():
        yield f"{table}: id {event_id} was committed and Kafka does not show it: manifest and topic do not belong together (a)"
    for event_id in (manifest.committed.keys() | visible.keys()) - lake.target_ids.keys() - case.run.excused_ids:
        copies = visible.get(event_id)
        if copies is None:
            if event_id not in lake.quarantine_ids:
                yield f"{table}: id {event_id} was committed, is no longer in Kafka and is neither in target nor in quarantine (a)"
        elif open_copies := [position for position in copies if position not in lake.standing]:
            where = case.where(open_copies[0])
            yield f"{where}: id {event_id} was committed and is lost: not in the target, and this copy not in quarantine (a)"
    produced = manifest.committed.keys() | visible.keys() | manifest.poison_ids.keys()
    # Once records have expired, Kafka no longer shows whether an unknown transaction was committed.
    possible = produced if whole else produced | manifest.unknown.keys()
    if manifest.given or whole:
        for event_id in lake.target_ids.keys() - possible - manifest.aborted_only:
            yield f"{table}: id {event_id} is in the target and nobody produced it (a)"
    for event_id, kind in manifest.poison_ids.items():
        if kind in case.run.refused_kinds and event_id in lake.target_ids:
            yield f"{table}: id {event_id} is in the target, and its record was broken ({kind}) (a)"


def check_positions(case: Case) -> Iterator[str]:
    """(b) Every record is either in the target or in the quarantine, or its id is in the target at another position."""
    lake, manifest = case.lake, case.manifest
    settled = lake.target_ids.keys() | case.run.excused_ids
    for position, record in case.records.items():
        held, kept, standing = lake.target.get(position), lake.quarantine.get(position), position in lake.standing
        if held is not None and kept is not None and standing:
            yield f"{case.where(position)}: id {held.event_id} is in the target and, {kept.state}, in the quarantine (b)"
        if kept is not None and not case.run.valid_in_quarantine and record.event_id is not None:
            valid = manifest.committed.get(record.event_id) or manifest.unknown.get(record.event_id) or set()
            if record.value_hash in valid:
                yield f"{case.where(position)}: id {record.event_id} is a valid event and in the quarantine (b)"
        if kept is not None and kept.value_hash != record.value_hash:
            yield f"{case.where(position)} is in the quarantine with other bytes than Kafka holds there (b)"
        if kept is not None and kept.topic_id != position.topic_id:
            yield f"{case.where(position)} is in the quarantine with the topic id {kept.topic_id!r}, and its number means another (b)"
        if record.event_id is None:
            if held is not None:
                yield f"{case.where(position)}: no id can be read from the record, and the target holds it as {held.event_id} (b)"
            elif not standing:
                yield f"{case.where(position)}: no id can be read from the record, and it is not in the quarantine: dropped (b)"
        elif held is None and not standing and record.event_id not in settled:
            yield f"{case.where(position)}: id {record.event_id} is in neither target nor quarantine nor elsewhere in the target (b)"
    for name, positions in (("target", lake.target.keys()), ("quarantine", lake.quarantine.keys())):
        for position, count in lake.doubled[name].items():
            yield f"{case.where(position)} is in the {name} {count} times (b)"
        for position in positions - case.records.keys():
            view = case.views.get(position.topic_id)
            if view is not None and position.offset >= view.begin.get(position.partition, 0):
                past = f"aborted, marker, past the end {view.end.get(position.partition, 0)}"
                yield f"{case.where(position)} is in the {name}, and no committed record is there ({past}) (b)"
        for topic_id, count in sorted(Counter(p.topic_id for p in positions if p.topic_id not in case.views).items()):
            yield f"{case.run.table}: {count} rows of the {name} name the topic id {topic_id!r}, which no topic of the table had (b)"


def check_aborted(case: Case) -> Iterator[str]:
    """(c) Ids that occur only in aborted transactions are neither in the target nor in the quarantine."""
    for name, ids in (("target", case.lake.target_ids.keys()), ("quarantine", case.lake.quarantine_ids)):
        for event_id in case.manifest.aborted_only & ids:
            yield f"{case.run.table}: id {event_id} comes from an aborted transaction and is in the {name} (c)"


def check_payloads(case: Case) -> Iterator[str]:
    """(d) A row has the id and the payload of the record at its position, and the producer sent that record."""
    for position, row in case.lake.target.items():
        event_id, record = row.event_id, case.records.get(position)
        if record is None:
            continue
        if record.event_id != event_id:
            yield f"{case.where(position)} holds id {event_id}, Kafka holds {record.event_id} there (d)"
            continue
        updated = case.run.updated.get(event_id, {})
        for column, stored, sent in zip(case.run.payload_columns, row.payload, record.payload, strict=True):
            if not _same(stored, updated.get(column, sent)):
                what = f"the test's UPDATE left {updated[column]!r}" if column in updated else f"{sent!r} was produced"
                yield f"{case.where(position)}: id {event_id} has {column} = {stored!r}, and {what} (d)"
        sent_hashes = case.manifest.committed.get(event_id, set()) | case.manifest.unknown.get(event_id, set())
        if sent_hashes and record.value_hash not in sent_hashes and event_id not in case.manifest.poison_ids:
            yield f"{case.where(position)}: id {event_id} has a payload in Kafka that no manifest names (d)"
    if unread := len(case.lake.target.keys() - case.records.keys()):
        case.notes.append(f"{case.run.table}: the payload of {unread} rows cannot be compared, Kafka does not show their records")


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
        return bool(re.fullmatch(r"-?\d+(\.\d+)?", sent)) and stored == Decimal(sent)  # contracts accept money sent as text
    if isinstance(stored, int | Decimal):
        return not isinstance(sent, str | dict | list) and Decimal(stored) == Decimal(sent)
    return bool(stored == sent)


CHECKS: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    check_ids,
    check_positions,
    check_aborted,
    check_payloads,
    check_log,
    check_sources,
    check_versions,
    check_order,
    check_gaps,
    check_batches,
    check_postings,
    check_sums,
    check_ledger,
)
