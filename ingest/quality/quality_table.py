"""The table of validation results: the newest run, and the rows that a run adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ingest.contract.definition import Contract
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, asked
from ingest.quality.scope import Last
from ingest.quality.validation_result import QualityRow
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Only runs in which every expectation could be evaluated.
NEWEST = """\
SELECT version_to AS version, target_id, suite_hash, {engine} AS engine FROM {{quality}}
GROUP BY run_id, run_at, version_to, target_id, suite_hash, {engine}
HAVING count(exception) = 0 ORDER BY run_at DESC LIMIT 1"""


def last_run(session: SparkSession | None, places: Places) -> Last | None:
    """The newest validation run in which every expectation could be evaluated; None if there is none. Raises Unreadable."""
    state = DeltaLog(files_of(places.lake, session), places.quality).state()
    if state is None:
        return None
    # Before there was a choice, every check was done by Spark.
    engine = "coalesce(engine, 'spark')" if '"name":"engine"' in state.schema.replace(" ", "") else "'spark'"
    found = asked(places.quality, session, lambda each: each.ask(NEWEST.format(engine=engine), quality=At(places.quality)))
    return Last(**found[0]) if found else None


def append_quality(session: SparkSession | None, contract: Contract, places: Places, rows: Sequence[QualityRow]) -> None:
    """Append validation results; creates the table if it does not exist. Without a session this process writes them itself.

    Not exactly once: the run id distinguishes one run from another. The caller holds the lock of this table (`table_lock.alone`), because
    checks run beside other checks, and beside the run that writes the target, whose locks do not cover this table.
    """
    if session is None:
        from ingest.delta.direct_writer import DirectWriter

        DirectWriter().append_quality(contract, places, [dataclasses.asdict(row) for row in rows])
    else:
        from ingest.delta import writer

        writer.append_quality(session, contract, places, [tuple(dataclasses.asdict(row).values()) for row in rows])
