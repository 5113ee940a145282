"""What has become of a table's history: log files cleaned up, pairs expired, files vacuumed, the ledger put back (I2, I3, I7)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ingest.errors import RunStopped
from ingest.stream import commit
from ingest.stream.commit import Written
from ingest.stream.opening import Opening
from tests.integration.desk import Desk
from tests.integration.lane import Lane, order, two_batches

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
MakeDesk = Callable[..., Desk]
DEADLINE_S = 60


def expire_pairs(session: SparkSession, table: str) -> None:
    """Let Delta forget every pair of the table: it does so when the state is read anew after its retention."""
    jvm: Any = session._jvm
    deadline, number = time.monotonic() + DEADLINE_S, 0
    properties = "'delta.setTransactionRetentionDuration' = 'interval 1 seconds', somebody"
    while True:
        number += 1
        session.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties} = '{number}')").collect()
        logs = jvm.org.apache.spark.sql.delta.DeltaLog
        logs.clearCache()
        if logs.forTable(session._jsparkSession, table).unsafeVolatileSnapshot().transactions().isEmpty():
            return
        assert time.monotonic() < deadline, "Delta keeps the pairs"


def test_a_pair_that_has_expired_stops_no_replay_and_the_event_id_does(desk: MakeDesk) -> None:
    """I3: Delta executes the MERGE again, which adds nothing."""
    one = desk()
    records = one.frame(order("a"), order("b"))
    one.process(records)
    mark = one.mark(0, 0, 2, read=2)
    target = one.table.ledger.target_log
    first = target.versions()[-1]
    expire_pairs(one.session, one.places.target)
    outcome = commit.merge_target(one.target(), one.contract, target, mark, {})
    assert isinstance(outcome, Written) and outcome.commit.version > first, "Delta has forgotten the pair"
    assert outcome.commit.transactions == {mark.app_id("target"): 0}
    assert sorted(one.rows("id")) == [("a",), ("b",)]


@pytest.mark.slow
def test_with_expired_pairs_and_preflight_bypassed_a_batch_that_is_in_the_log_is_not_written_again(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: the log decides; preflight would have refused the table for the sake of those it no longer has."""
    one = two_batches(lane)
    expire_pairs(one.session, one.places.target)
    one.forget_commit(1)
    one.send(order("c"))
    assert one.stopped().code == "TXN_RETENTION"
    monkeypatch.setattr(Opening, "refuse", lambda _: None)
    assert [(report.number, report.skipped) for report in one.run()] == [(1, True), (2, False)]
    assert one.ids() == ["a", "b", "c"] and one.quarantine().count() == 1


def test_a_commit_that_is_taken_out_of_the_log_under_a_run_stops_it_before_the_next_batch(desk: MakeDesk) -> None:
    """I2: the next commit would get its number, and nothing would stand behind the hole."""
    one = desk()
    one.batch(order("a"))
    one.batch(order("b"))
    log = Path(one.places.target) / "_delta_log"
    for name in (f"{2:020}.json", f".{2:020}.json.crc", f"{2:020}.crc"):
        (log / name).unlink(missing_ok=True)
    with pytest.raises(RunStopped, match=r"TABLE_REWOUND.*batch 1 \(version 2\) is no longer in force"):
        one.batch(order("c"))
    assert one.table.ledger.target_log.versions() == [0, 1]


@pytest.mark.slow
def test_a_vacuum_of_what_readers_may_need_is_refused_and_a_forced_one_is_loud(desk: MakeDesk) -> None:
    """A reader of an older version fails rather than getting fewer rows; the newest version and the next batch miss nothing."""
    one = desk()
    for name in ("a", "b"):
        one.batch(order(name))
    stranger = one.session.newSession()
    before = one.table.ledger.target_log.versions()[-1]
    stranger.sql(f"OPTIMIZE delta.`{one.places.target}`").collect()
    with pytest.raises(Exception, match="retention"):
        stranger.sql(f"VACUUM delta.`{one.places.target}` RETAIN 0 HOURS").collect()
    live = stranger.read.format("delta").option("versionAsOf", before).load(one.places.target)
    other = DeltaTable(one.places.target, version=before)
    assert live.count() == other.to_pyarrow_table().num_rows == 2
    stranger.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    stranger.sql(f"VACUUM delta.`{one.places.target}` RETAIN 0 HOURS").collect()
    with pytest.raises(Exception, match=r"(?i)not.?found|not.?exist|no such file|vacuum"):
        live.select("id").collect()
    with pytest.raises(Exception, match=r"(?i)not.?found|no such file"):
        other.to_pyarrow_table()
    one.batch(order("b"), order("c"))
    assert sorted(one.rows("id")) == [("a",), ("b",), ("c",)]


@pytest.mark.slow
def test_with_the_log_cleaned_a_rebase_goes_on_where_the_ledger_says(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.clean_log()
    one.lose_checkpoint()
    assert one.stopped().code == "CHECKPOINT_LOST"
    one.rebase("table")
    one.send(order("b"), order("c"))
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.duplicate) == (2, 1, 1)
    assert one.ids() == ["a", "b", "c"] and one.verified().findings == ()


@pytest.mark.slow
def test_a_ledger_restored_to_an_older_version_stops_the_run_by_name_and_moved_away_it_is_made_again(lane: MakeLane) -> None:
    """RESTORE keeps the ledger's pairs, so that Delta would skip what completes it."""
    one = two_batches(lane)
    one.sql("RESTORE TABLE {} TO VERSION AS OF 1", "ledger")
    assert [row["batch_id"] for row in one.ledger()] == [0]
    one.send(order("c"))
    error = one.stopped()
    assert error.code == "TABLE_REWOUND" and f"{one.places.ledger} was restored" in error.found and "move it away" in error.remedy
    assert one.ids() == ["a", "b"]
    shutil.move(one.places.ledger, str(Path(one.places.root).parent / "ledger-away"))
    one.run()
    assert [row["batch_id"] for row in one.ledger()] == [0, 1, 2] and one.ids() == ["a", "b", "c"]
    assert one.verified().findings == ()
