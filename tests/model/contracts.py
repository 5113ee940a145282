"""The two contracts between which a schedule changes."""

from __future__ import annotations

from functools import cache

from ingest.contract import Contract
from tests.model import kafka

PIPELINE, TABLE = "shop", "orders"


@cache
def contract(conflicts: str, strict: bool) -> Contract:
    """One of the two contracts: the strict one has a row rule more, which `odd` records break."""
    return Contract.model_validate(
        {
            "pipeline": PIPELINE,
            "table": TABLE,
            "source": {"topic": kafka.NAME, "format": "json"},
            "columns": [{"name": "id", "type": "BIGINT", "nullable": False}, {"name": "n", "type": "BIGINT"}],
            "event_id": ["id"],
            "conflicts": conflicts,
            "rules": [{"name": "even", "check": "n % 2 = 0"}] if strict else [],
        }
    )
