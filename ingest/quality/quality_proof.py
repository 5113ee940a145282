"""What a proof says of a table's quality: the newest check, the audited version with its hold, and the control totals."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC
from typing import Any

from ingest.contract.definition import Contract
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, Engine
from ingest.quality.audited_version import audit_state
from ingest.quality.control_total import control_totals, grand_totals
from ingest.runtime.files import files_of
from ingest.runtime.places import Places
from ingest.verify.proof.proof_file import utc

# The newest validation run. `failed` counts critical expectations only.
QUALITY = """\
SELECT run_id, run_at, max(version_to) AS version, sum(CASE WHEN severity = 'critical' AND NOT success THEN 1 ELSE 0 END) AS failed
FROM {quality} GROUP BY run_id, run_at ORDER BY run_at DESC LIMIT 1"""


def quality_proof(engine: Engine, contract: Contract, places: Places, version: int) -> dict[str, Any]:
    """The keys `quality`, `audited`, `held` and `control_totals` of a proof of this version of the target. Raises Unreadable."""
    files = files_of(places.lake, engine.session)
    totals = control_totals(engine, contract, At(places.target, version))
    return {
        "quality": _newest_check(engine, places) if DeltaLog(files, places.quality).exists() else None,
        **asdict(audit_state(files, places)),
        "control_totals": grand_totals(contract, totals),
    }


def _newest_check(engine: Engine, places: Places) -> dict[str, Any] | None:
    for row in engine.ask(QUALITY, quality=At(places.quality)):
        return {**row, "run_at": utc(row["run_at"].astimezone(UTC)), "ok": not row["failed"]}
    return None
