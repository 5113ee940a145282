"""The trail of an event id in the lake: its row with batch and commit version, and its copies in quarantine. Without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingest.contract.definition import Contract
from ingest.delivery.trace.sighting import Sighting
from ingest.delta.delta_sql import At, DataFusion, quoted
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places


def traceable(contract: Contract) -> bool:
    """Whether one text identifies a row: an event id in the record's key, in a header, or in one STRING column."""
    wanted = contract.event_id
    if wanted.kind in ("key", "header"):
        return True
    types = {column.name: column.type.upper() for column in contract.columns}
    return wanted.kind == "columns" and len(wanted.columns) == 1 and types.get(wanted.columns[0]) == "STRING"


def lake_trail(contract: Contract, places: Places, event_id: str) -> Iterator[Sighting]:
    """The row and the quarantined records with this event id. Raises InvalidEnvironment TABLE_UNREADABLE."""
    engine, files = DataFusion(), LocalFiles()
    target, quarantine, ledger = At(places.target), At(places.quarantine), At(places.ledger)
    column = contract.event_id.columns[0] if contract.event_id.kind == "columns" else "_event_id"
    has = {at: bool(files.names(f"{at.path}/_delta_log")) for at in (target, quarantine, ledger)}
    if has[target]:
        provenance = "`_source` AS s, `_partition` AS p, `_offset` AS o, `_epoch` AS epoch, `_batch` AS batch, `_ingested_at` AS at"
        for row in engine.ask(f"SELECT {provenance} FROM {{target}} WHERE `{column}` = {quoted(event_id)}", target=target):
            version, topic = _batch(engine, ledger, row) if has[ledger] else (None, None)
            commit = f", commit version {version}" if version is not None else ""
            place = f"{topic or contract.source.shown}[{row['p']}]@{row['o']}"
            what = f"row from {place}, batch {row['epoch']}/{row['batch']}{commit}, {row['at']:%Y-%m-%d %H:%M:%S}"
            details = {"topic": topic, "partition": row["p"], "offset": row["o"]}
            details |= {"epoch": row["epoch"], "batch": row["batch"], "version": version}
            yield Sighting("lake", places.name, what, details)
    if has[quarantine]:
        columns = "`topic`, `partition`, `offset`, `epoch`, `batch`, `reason_code`, `reason_detail`, `state`"
        order = "`epoch`, `batch`, `source`, `partition`, `offset`"
        sql = f"SELECT {columns} FROM {{quarantine}} WHERE `event_id` = {quoted(event_id)} ORDER BY {order}"
        for row in engine.ask(sql, quarantine=quarantine):
            place = f"{row['topic']}[{row['partition']}]@{row['offset']}"
            why = f"{row['reason_code']} ({row['reason_detail']})" if row["reason_detail"] else row["reason_code"]
            yield Sighting("quarantine", places.name, f"{place}, batch {row['epoch']}/{row['batch']}, {row['state']}: {why}", row)


def _batch(engine: DataFusion, ledger: At, row: dict[str, Any]) -> tuple[int | None, str | None]:
    """The commit version of the row's batch, and the row's topic, if the ledger has them."""
    (found,) = engine.ask(
        "SELECT max(`version`) AS version, max(`topic`) AS topic FROM {ledger} WHERE `of_table` = 'target' AND `start_offset` IS NOT NULL "
        f"AND `epoch` = {int(row['epoch'])} AND `batch` = {int(row['batch'])} AND `source` = {int(row['s'])}",
        ledger=ledger,
    )
    return found["version"], found["topic"]
