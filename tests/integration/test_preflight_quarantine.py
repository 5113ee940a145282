"""Preflight (I6) where the quarantine lost records: refused or stopped, and filled again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ingest import faults
from tests.integration.lane import order, two_batches
from tests.integration.refusal import MakeLane, balanced, refused

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_quarantine_that_lost_its_records_is_refused_and_filled_again(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.sql("RESTORE TABLE {} TO VERSION AS OF 0", "quarantine")
    refused(one, "QUARANTINE_REWOUND")
    one.rebase("earliest")
    one.run()
    assert one.quarantine().count() == 1 and one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_a_backup_of_the_quarantine_that_is_newer_than_the_last_look_is_refused_and_filled_again(lane: MakeLane) -> None:
    """Nothing in its log was left out, and no start has seen more of it."""
    one = lane()
    one.send(order("a"))
    one.run()
    quarantine, kept = Path(one.places.quarantine), one.folder / "kept"
    shutil.copytree(quarantine, kept)
    one.send(order("b"), "{")
    one.run()
    shutil.rmtree(quarantine)
    shutil.copytree(kept, quarantine)
    jvm: Any = one.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # another process has a JVM of its own
    assert "a copy of before was put back" in refused(one, "QUARANTINE_REWOUND").found
    one.rebase()
    one.run()
    assert one.quarantine().count() == 1 and one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_a_quarantine_restored_under_a_later_epoch_is_refused_and_a_rebase_to_the_table_fetches_what_it_lacks(lane: MakeLane) -> None:
    """The records of a former checkpoint: the newest batch of the current one stands there, as if nothing had happened."""
    one = two_batches(lane)
    one.rebase()
    one.send("[", order("c"))
    one.run()
    one.sql("RESTORE TABLE {} TO VERSION AS OF 0", "quarantine")
    one.send("]")
    error = refused(one, "QUARANTINE_REWOUND")
    assert "(RESTORE) left out 2 commits" in error.found and "--to table" in error.remedy
    done = one.rebase()
    assert done.binding.rebase is not None and done.binding.rebase.baseline == ((0, 1),), "where batch 1 of the first epoch began"
    (report,) = one.run()
    assert (report.inserted, report.replayed, report.quarantined) == (0, 2, 3)
    assert one.ids() == ["a", "b", "c"] and one.quarantine().count() == 3
    balanced(one)
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_a_quarantine_restored_while_a_run_is_at_work_stops_it(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    one = two_batches(lane)
    one.send("[", order("c"))
    at = faults.at

    def restored(point: str, batch: int, *more: str) -> None:
        if (point, batch) == ("after_offset_log", 2):
            one.session.newSession().sql(f"RESTORE TABLE delta.`{one.places.quarantine}` TO VERSION AS OF 0").collect()
        at(point, batch, *more)

    monkeypatch.setattr(faults, "at", restored)
    assert one.stopped().code == "QUARANTINE_REWOUND"
    monkeypatch.undo()
    refused(one, "QUARANTINE_REWOUND")
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b", "c"] and one.quarantine().count() == 2
    balanced(one)
