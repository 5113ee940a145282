"""Records that the quarantine lacks of what several checkpoints have read: by the batch that put them there (I4, I5).

Where ranges of checkpoints overlap, the sum of a stretch does not tell: what one lost another may have put there again, and what one
lost is made up by what another put there anew. But every record of the quarantine names its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ingest.delta_sql import Engine, quoted
from ingest.prove.balance import Finding, Segment, finding
from ingest.prove.count import Rows, count
from ingest.prove.intervals import Intervals
from ingest.stream.ledger_row import LedgerRow

BY_BATCH = """\
SELECT query_id AS q, batch_id AS b, topic_id AS t, partition AS p, count(*) AS n
FROM {rows} WHERE %s GROUP BY query_id, batch_id, topic_id, partition"""


def lacking(engine: Engine, records: Rows, parts: Sequence[Segment]) -> Iterator[Finding]:
    """Ledger rows in segments of several checkpoints whose batch has put more into quarantine than stands there by it, or stands again
    in its range by a later checkpoint. Raises Unreadable."""
    shared = [row for part in parts if part.shared for row in part.rows if row.quarantined]
    if not shared:
        return
    told = engine.ask(BY_BATCH % records.where, **records.tables)
    held = {(row["q"], row["b"], row["t"], row["p"]): row["n"] for row in told}
    epochs = {row.query_id: row.epoch for part in parts for row in part.rows}
    for query in sorted({row.query_id for row in shared}):
        rows = [row for row in shared if row.query_id == query]
        short = {row: lost for row in rows if (lost := row.quarantined - held.get(_batch(row), 0)) > 0}
        others = sorted(each for each, epoch in epochs.items() if each != query and epoch >= epochs[query])
        again = _again(engine, records, list(short), others) if short and others else {}
        for row, lost in short.items():
            # Where they have not read all of its range, what they put there may be its duplicates, judged anew, and not what was lost.
            spare = 0 if _covered(row, parts, others) else row.duplicate
            if lost > (come_back := max(0, again.get(row, 0) - spare)):
                there = row.quarantined - lost + come_back
                yield finding("QUARANTINE_DIFFERS", row, f"the ledger says {row.quarantined} records went to quarantine, it holds {there}")


def _batch(row: LedgerRow) -> tuple[str, int, str, int]:
    return row.query_id, row.batch_id, row.topic_id, row.partition


def _covered(row: LedgerRow, parts: Sequence[Segment], others: Sequence[str]) -> bool:
    """Whether these checkpoints have read the whole range of the row."""
    where = row.topic_id, row.partition
    theirs = (each for part in parts if (part.topic_id, part.partition) == where for each in part.rows if each.query_id in others)
    return not Intervals.of([(row.start_offset, row.end_offset)]).minus(Intervals.of((r.start_offset, r.end_offset) for r in theirs))


def _again(engine: Engine, records: Rows, rows: Sequence[LedgerRow], others: Sequence[str]) -> dict[LedgerRow, int]:
    """How many records stand in the range of each row by these checkpoints; the rows are of one, which reads nothing twice."""
    theirs = " OR ".join(f"query_id = {quoted(query)}" for query in others)
    parts = [Segment.of(row) for row in rows]
    counted = count(engine, replace(records, where=f"({records.where}) AND ({theirs})"), parts)
    return {rows[index]: number for index, number in counted.by_segment.items()}
