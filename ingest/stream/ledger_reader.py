"""The ledger's summary without Spark, for verbs that must answer at once: read with deltalake."""

from __future__ import annotations

from typing import Any

from ingest.places import Places
from ingest.stream.ledger_summary import LedgerSummary, summary_of

NEWEST = """\
SELECT * FROM (
  SELECT *, max(end_offset) OVER (PARTITION BY query_id, topic_id, partition) AS reached,
         row_number() OVER (PARTITION BY query_id, topic_id, partition ORDER BY batch_id DESC) AS place
  FROM ledger WHERE kind = 'batch'
) WHERE place = 1"""
QUARANTINED = """\
SELECT query_id, topic_id, partition, max(batch_id) AS batch, min(start_offset) AS start
FROM ledger WHERE kind = 'batch' AND quarantined > 0 GROUP BY query_id, topic_id, partition"""
REBASES = "SELECT * FROM ledger WHERE kind = 'rebase'"


def read_summary(places: Places) -> LedgerSummary:
    """What the ledger of a local lake knows; empty where there is none."""
    from deltalake import DeltaTable, QueryBuilder

    if not DeltaTable.is_deltatable(places.ledger):
        return LedgerSummary()
    builder = QueryBuilder().register("ledger", DeltaTable(places.ledger))

    def rows(sql: str) -> list[dict[str, Any]]:
        table = builder.execute(sql).read_all()
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    return summary_of(rows(NEWEST), rows(REBASES), rows(QUARANTINED))
