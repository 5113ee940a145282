"""Quarantine and ledger restored to an older version under a checkpoint: refused by name, mended as that says (I5, I6, I7)."""

from __future__ import annotations

import json
import shutil

import pytest
from deltalake import DeltaTable

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import KINDS, Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# The table whose quarantine is restored, and the one whose ledger is: two in one driver, to start fewer JVMs.
SHORT, BEHIND = "orders_short", "orders_behind"


def restored(lake: Pipeline, kind: str, table: str, version: int) -> int:
    """Restore one of the tables; the version that this is."""
    DeltaTable(str(lake.delta(kind, table))).restore(version)
    return lake.commits(kind, table)[-1].version


def test_a_quarantine_and_a_ledger_restored_to_an_older_version_are_refused_by_name_and_mended_as_that_says(
    pipeline: PipelineFactory,
) -> None:
    """Delta keeps the pairs of what a RESTORE takes away, and would skip it. A rebase reads again what the quarantine lacks; the ledger
    is made again once it is moved away; no row comes twice."""
    lake = pipeline(tables=(SHORT, BEHIND), batch=1500)
    lake.produce(1500, poison=20)
    lake.complete()
    quarantine, ledger = (lake.commits(kind, table)[-1].version for kind, table in (("quarantine", SHORT), ("ledger", BEHIND)))
    lake.produce(1500, poison=20, seed=2)
    lake.complete()
    own = restored(lake, "quarantine", SHORT, quarantine)
    restored(lake, "ledger", BEHIND, ledger)

    before = [len(lake.commits(kind, table)) for kind in KINDS for table in (SHORT, BEHIND)]
    lake.produce(500, seed=3)
    told = json.loads(lake.start("--once", "--json").ended(5))["tables"]
    errors = {row["table"]: row["error"] for row in told}
    short, behind = errors[f"shop.{SHORT}"], errors[f"shop.{BEHIND}"]
    assert short["code"] == "QUARANTINE_REWOUND" and f"`ingest rebase shop.{SHORT} --to table`" in short["remedy"]
    assert behind["code"] == "TABLE_REWOUND" and str(lake.delta("ledger", BEHIND)) in behind["found"] and "move it away" in behind["remedy"]
    assert [len(lake.commits(kind, table)) for kind in KINDS for table in (SHORT, BEHIND)] == before, "nothing was written"

    lake.command("rebase", f"shop.{SHORT}", "--to", "table").ended(0)
    shutil.move(lake.delta("ledger", BEHIND), lake.folder / "ledger moved away")
    lake.complete()
    assert [row["epochs"] for row in lake.verified()] == [1, 2]
    lake.judge(SHORT, own_quarantine_versions=frozenset({own})).assert_clean()
    lake.judge(BEHIND).assert_clean()
