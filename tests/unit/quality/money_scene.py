"""A table of payments with a control total, and its rows."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from ingest.contract.definition import Contract
from ingest.runtime.places import Places

TOTAL = {"name": "fees", "sum": ["fee", "items"], "by": ["currency"], "day": "paid_at", "tolerance": "0.01"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("fee", pa.decimal128(28, 4)),
        ("items", pa.int64()),
        ("currency", pa.string()),
        ("paid_at", pa.timestamp("us", "UTC")),
    ]
)


def contract_of(**more: Any) -> Contract:
    columns = [
        {"name": "id", "type": "STRING", "nullable": False},
        {"name": "fee", "type": "DECIMAL(28,4)"},
        {"name": "items", "type": "BIGINT"},
        {"name": "currency", "type": "STRING"},
        {"name": "paid_at", "type": "TIMESTAMP"},
    ]
    source = {"topic": "payments", "format": "json"}
    described = {"pipeline": "shop", "table": "payments", "source": source, "columns": columns, "event_id": ["id"]}
    return Contract.model_validate({**described, "control_totals": [TOTAL], **more})


def paid(day: int, currency: str | None, fee: str | None, items: int = 1, hour: int = 12) -> dict[str, Any]:
    """A row of a day in November 2026."""
    at = datetime(2026, 11, day, hour, tzinfo=UTC)
    return {"id": "x", "fee": None if fee is None else Decimal(fee), "items": items, "currency": currency, "paid_at": at}


def places_of(folder: Path) -> Places:
    return Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", "payments")


def write(folder: Path, *rows: dict[str, Any]) -> Places:
    """Append a version of the target."""
    places = places_of(folder)
    write_deltalake(places.target, pa.Table.from_pylist(list(rows), SCHEMA), mode="append")
    return places
