"""Read quarantined records: groups by reason, and the records themselves as plain values. Writes nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine
from ingest.delta.log_errors import table_missing
from ingest.repair.selection import Selection
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

GROUPS = """\
SELECT reason_code AS reason, state, count(*) AS records, min(kafka_timestamp) AS first, max(kafka_timestamp) AS last
FROM {quarantine} WHERE <condition> GROUP BY reason_code, state ORDER BY records DESC, reason, state"""
RECORDS = """\
SELECT `partition`, `offset`, topic, topic_id, kafka_timestamp, reason_code, reason_detail, event_id, state, state_changed_at, state_by,
       epoch, batch, contract_hash, key, value, headers
FROM {quarantine} WHERE <condition> ORDER BY source, `partition`, `offset`"""


def grouped(engine: Engine, places: Places, selection: Selection) -> list[dict[str, Any]]:
    """The selected records by reason and state: reason, state, records, first and last Kafka timestamp.

    Raises Unreadable, and InvalidInput TABLE_MISSING.
    """
    return [_plain(row) for row in engine.ask(GROUPS.replace("<condition>", selection.condition), quarantine=_table(engine, places))]


def records(engine: Engine, places: Places, selection: Selection, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The selected records by position, each as JSON values: bytes as base64, and as text where they are UTF-8 (else None).

    Raises Unreadable, and InvalidInput TABLE_MISSING.
    """
    sql = RECORDS.replace("<condition>", selection.condition) + (f" LIMIT {limit}" if limit is not None else "")
    for row in engine.ask(sql, quarantine=_table(engine, places)):
        texts = {f"{name}_text": _text(row[name]) for name in ("key", "value")}
        yield {**_plain(row), **texts}


def _table(engine: Engine, places: Places) -> At:
    if not DeltaLog(files_of(places.lake, engine.session), places.quarantine).exists():
        raise table_missing(places.name, places.quarantine, "a quarantine that `ingest run` has created.")
    return At(places.quarantine)


def _text(value: bytes | None) -> str | None:
    try:
        return bytes(value).decode() if value is not None else None
    except UnicodeDecodeError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime):
        moment = value.astimezone(UTC)  # Spark returns local time without a zone
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
