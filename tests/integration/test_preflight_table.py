"""Preflight (I6) where target, ledger or their log were changed: every refusal provoked for real, and what mends it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from kafka import TopicPartition
from pyspark.sql import SparkSession

from ingest.errors import Refused
from ingest.stream import commit
from tests.integration.lane import Lane, order, two_batches
from tests.integration.refusal import MakeLane, admin, balanced, forget_tables, refused

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_a_restored_table_is_refused_though_it_keeps_its_pairs_and_a_rebase_reads_again_what_it_lost(lane: MakeLane) -> None:
    """without the history the MERGE of batch 1 would be skipped, though its rows are gone."""
    one = two_batches(lane)
    one.send(order("c"))
    one.run()
    one.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    error = refused(one, "TABLE_REWOUND")
    assert "batch 2" in error.found and "left it out" in error.found
    assert [f.code for f in one.verified().findings], "verify sees it too"
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b", "c"]
    ended = [row for row in one.ledger() if row["kind"] == "rebase" and row["epoch"] == 0]
    assert [(row["batch_id"], row["end_offset"]) for row in ended] == [(0, 1)]
    balanced(one)


@pytest.mark.slow
def test_a_restore_to_a_time_and_an_optimize_and_a_delete_in_between_are_understood(lane: MakeLane) -> None:
    one = two_batches(lane)
    moment = one.log().commit(2).committed_at
    time.sleep(0.01)  # timestamps of commits are milliseconds
    one.send(order("c"))
    one.run()
    one.sql("OPTIMIZE {}")
    one.sql("DELETE FROM {} WHERE id = 'a'")
    one.run()  # neither of them rewinds anything
    one.sql(f"RESTORE TABLE {{}} TO TIMESTAMP AS OF '{moment.isoformat(sep=' ', timespec='milliseconds')}'")
    refused(one, "TABLE_REWOUND")
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["CREATE OR REPLACE TABLE {} USING delta AS SELECT * FROM {} WHERE false", "overwrite", "dynamic"])
def test_a_replaced_or_overwritten_table_is_refused(lane: MakeLane, statement: str) -> None:
    one = two_batches(lane)
    if statement in ("overwrite", "dynamic"):  # the mode that many set for all their sessions is none for a table without partitions
        mode = "static" if statement == "overwrite" else "dynamic"
        rows = one.target().where("false").write.format("delta").mode("overwrite")
        rows.option("partitionOverwriteMode", mode).save(one.places.target)
    else:
        name = f"delta.`{one.places.target}`"
        one.session.sql(statement.format(name, name)).collect()
    error = one.stopped()
    assert error.code in ("TABLE_REWOUND", "TABLE_REPLACED")
    one.rebase("earliest")
    if statement not in ("overwrite", "dynamic"):
        assert one.stopped().code == "CONTRACT_CHANGED", "who replaced it left out that the id must not be null"
        return
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_a_table_that_was_deleted_or_made_again_is_refused(lane: MakeLane) -> None:
    one = two_batches(lane)
    shutil.rmtree(one.places.target)
    refused(one, "TABLE_REWOUND")
    fresh = Lane(one.session, one.contract, one.bootstrap_servers, one.folder / "fresh")
    fresh.run()
    shutil.move(fresh.places.target, one.places.target)
    # Its batches are those of another checkpoint: that is said first.
    refused(one, "TABLE_OWNED")


@pytest.mark.slow
def test_a_dropped_table_that_was_made_empty_again_is_refused_by_its_id(lane: MakeLane) -> None:
    one = two_batches(lane)
    shutil.rmtree(one.places.target)
    shutil.rmtree(Path(one.places.root, "quarantine"))
    shutil.rmtree(Path(one.places.root, "ledger"))
    commit.create_tables(one.session, one.contract, one.places)
    refused(one, "TABLE_REPLACED")
    one.rebase("earliest")
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_a_table_of_somebody_else_is_refused(lane: MakeLane) -> None:
    one = lane()
    one.send(order("a"))
    one.session.range(3).selectExpr("cast(id as string) as id").write.format("delta").save(one.places.target)
    refused(one, "TABLE_FOREIGN")
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        one.rebase()


@pytest.mark.slow
def test_nothing_is_jumped_over_in_silence_though_the_lake_was_deleted(lane: MakeLane) -> None:
    one = two_batches(lane)
    shutil.rmtree(one.places.root)
    client = admin(one)
    client.delete_records({TopicPartition(one.contract.source.topic, 0): 1})
    client.close()
    jvm: Any = one.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert "--to table" in refused(one, "TABLE_REWOUND").remedy
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[0, 1\)"):
        one.rebase()
    one.rebase(accept_gap=True)
    one.run()
    verified = one.verified()
    assert verified.findings == () and verified.gaps_accepted == ((0, 0, 1),) and one.ids() == ["b"]


@pytest.mark.slow
def test_a_ledger_that_is_gone_is_made_again_and_without_log_and_ledger_the_start_is_refused(lane: MakeLane) -> None:
    one = two_batches(lane)
    shutil.rmtree(Path(one.places.root, "ledger"))
    one.send(order("c"))
    one.run()
    assert [row["batch_id"] for row in one.ledger()] == [0, 1, 2]
    balanced(one)
    shutil.rmtree(Path(one.places.root, "ledger"))
    one.clean_log()
    refused(one, "HISTORY_GONE")
    one.rebase("earliest")
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_with_the_log_cleaned_the_ledger_tells_where_to_go_on(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.clean_log()
    one.send(order("c"))
    (report,) = one.run()
    assert (report.number, report.inserted) == (2, 1)
    balanced(one)


@pytest.mark.slow
def test_pairs_that_would_expire_are_refused(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')")
    error = refused(one, "TXN_RETENTION")
    one.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")
    assert "UNSET TBLPROPERTIES" in error.remedy
    one.send(order("c"))
    one.run()
    assert one.ids() == ["a", "b", "c"]


@pytest.mark.slow
def test_a_batch_that_a_restore_took_away_before_spark_noted_it_is_not_skipped(lane: MakeLane) -> None:
    """I2: Delta keeps the pair of batch 1, and would skip its MERGE."""
    one = two_batches(lane)
    one.forget_commit(1)
    one.sql("RESTORE TABLE {} TO VERSION AS OF 1")
    refused(one, "TABLE_REWOUND")
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
@pytest.mark.parametrize(("overwritten", "begins"), [(False, 1), (True, 0)], ids=["restored", "overwritten"])
def test_a_batch_that_slipped_in_behind_a_restore_or_an_overwrite_proves_none_before_it(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch, overwritten: bool, begins: int
) -> None:
    """I2: between the last look at the table and its MERGE, which Delta then lets through."""
    one = two_batches(lane)
    one.send(order("c"))
    for_path = DeltaTable.forPath

    def late(session: SparkSession, path: str) -> DeltaTable:
        if path == one.places.target:
            monkeypatch.undo()
            other = one.session.newSession()
            if overwritten:
                other.read.format("delta").load(path).where("false").write.format("delta").mode("overwrite").save(path)
            else:
                other.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1").collect()
        return for_path(session, path)

    monkeypatch.setattr(DeltaTable, "forPath", late)
    stopped = one.stopped()
    assert (stopped.code, stopped.exit_code) == ("TABLE_REWOUND", 5)
    assert [mark.id.number for _, mark in one.batches()][-1] == 2, "the batch was merged"
    error = refused(one, "TABLE_REWOUND")
    assert "Delta keeps the pair of batch 2" in error.found, error
    done = one.rebase()
    assert done.binding.rebase is not None and done.binding.rebase.baseline == ((0, begins),), "where the first hole is"
    one.run()
    assert one.ids() == ["a", "b", "c"] and one.quarantine().count() == 1
    balanced(one)


@pytest.mark.slow
def test_a_target_deleted_with_its_checkpoint_is_no_first_start_while_the_ledger_is_there(lane: MakeLane) -> None:
    one = two_batches(lane)
    shutil.rmtree(one.places.target)
    shutil.rmtree(one.places.checkpoint)
    forget_tables(one)
    assert "the ledger beside" in refused(one, "CHECKPOINT_LOST").found
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_copies_of_target_and_checkpoint_put_back_beside_a_later_ledger_are_refused_and_read_again(lane: MakeLane) -> None:
    one = two_batches(lane)
    for folder in (one.places.target, one.places.checkpoint):
        shutil.copytree(folder, f"{folder}.kept")
    one.send(order("c"), "[")
    one.run()
    for folder in (one.places.target, one.places.checkpoint):
        shutil.rmtree(folder)
        shutil.move(f"{folder}.kept", folder)
    forget_tables(one)
    assert "the ledger of" in refused(one, "TABLE_REWOUND").found
    one.rebase()
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_what_was_kept_beside_a_checkpoint_before_it_told_commits_and_gaps_is_read_and_completed(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.rebase("latest")
    one.rebase()
    one.run()
    binding, seen = one.checkpoint("oncelake/binding.json"), one.checkpoint("oncelake/quarantine.json")
    told, note = json.loads(binding.read_text()), json.loads(seen.read_text())
    for each in (told["rebase"], *told["rebase"]["former"]):
        del each["stamp"]
    for each in told["rebase"]["former"]:
        del each["gaps"]
    del told["rebase"]["regain"], note["stamp"]
    binding.write_text(json.dumps(told))
    seen.write_text(json.dumps(note))
    one.send(order("c"), "{")
    one.run()
    assert json.loads(seen.read_text())["stamp"]
    balanced(one)
    one.rebase("earliest")
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)
