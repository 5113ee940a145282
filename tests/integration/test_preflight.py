"""Preflight (I6): every refusal provoked for real, and what mends it: nothing lost, nothing doubled, a balanced verify."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from delta.tables import DeltaTable
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from ingest import faults
from ingest.errors import Refused
from ingest.stream import commit, lock, lock_file, topic
from ingest.stream.topic import describe
from tests.integration.lane import Lane, Record, order, two_batches
from tests.integration.records import contract

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
DEADLINE_S = 60


def refused(lane: Lane, code: str) -> Refused:
    """A start is refused with this code, and changes nothing."""
    before = lane.versions() if lane.log().exists() else {}
    error = lane.stopped()
    assert isinstance(error, Refused), error
    assert (error.code, error.exit_code) == (code, 3), error
    assert before == (lane.versions() if before else {})
    return error


def balanced(lane: Lane) -> None:
    found = lane.verified().findings
    assert not found, "\n".join(map(str, found))


def cut_off(lane: Lane, at: str, aim: Literal["table", "earliest"] = "table") -> None:
    """A rebase that ends at this crash point."""

    class Cut(Exception):
        pass

    def cut(point: str, batch: int) -> None:
        if point == at:
            raise Cut

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):
        patch.setattr(faults, "at", cut)
        lane.rebase(aim)


def admin(lane: Lane) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=lane.bootstrap_servers)


def made_again(lane: Lane) -> None:
    """Delete the topic and make it anew."""
    topic = lane.contract.source.topic
    client = admin(lane)
    client.delete_topics([topic])
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            client.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
            break
        except Exception:  # the broker is still deleting
            assert time.monotonic() < deadline
            time.sleep(0.1)
    client.close()


def test_a_lost_checkpoint_is_refused_and_rebased_to_the_tables_end(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.lose_checkpoint()
    error = refused(one, "CHECKPOINT_LOST")
    assert f"ingest rebase {one.places.name} --to table" in error.remedy
    done = one.rebase()
    assert done.aside is None and done.binding.epoch == 1
    one.send(order("c"), order("a"))
    (report,) = one.run()
    assert (report.number, report.inserted, report.duplicate, report.replayed) == (1, 1, 1, 0)
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_an_older_checkpoint_is_refused_and_rebased_to_the_tables_end(lane: MakeLane) -> None:
    one = two_batches(lane)
    kept = one.folder / "kept"
    shutil.copytree(one.places.checkpoint, kept)
    one.send(order("c"))
    one.run()
    shutil.rmtree(one.places.checkpoint)
    shutil.copytree(kept, one.places.checkpoint)
    one.send(order("d"))
    error = refused(one, "CHECKPOINT_OLD")
    assert "batch 1" in error.found and "batch 2" in error.found
    done = one.rebase()
    assert done.aside is not None and Path(done.aside, "metadata").exists()
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)


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
@pytest.mark.parametrize("statement", ["CREATE OR REPLACE TABLE {} USING delta AS SELECT * FROM {} WHERE false", "overwrite"])
def test_a_replaced_or_overwritten_table_is_refused(lane: MakeLane, statement: str) -> None:
    one = two_batches(lane)
    if statement == "overwrite":
        one.target().where("false").write.format("delta").mode("overwrite").save(one.places.target)
    else:
        name = f"delta.`{one.places.target}`"
        one.session.sql(statement.format(name, name)).collect()
    error = one.stopped()
    assert error.code in ("TABLE_REWOUND", "TABLE_REPLACED")
    one.rebase("earliest")
    if statement != "overwrite":
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
def test_a_checkpoint_without_a_batch_goes_on_with_the_table_that_was_made_anew(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bound to a table that was deleted before anything was in it: the next start but one must not take the new one for another's."""
    one = lane()
    one.send(order("a"))
    monkeypatch.setattr(faults, "_armed", faults.Fault("after_offset_log", "raise", 0))
    one.stopped()
    monkeypatch.setattr(faults, "_armed", None)
    shutil.rmtree(one.places.root)
    one.run()
    one.send(order("b"))
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
def test_two_checkpoints_on_one_table_are_refused_even_with_the_lock_bypassed(lane: MakeLane) -> None:
    """I8"""
    one = two_batches(lane)
    two = Lane(one.session, one.contract, one.bootstrap_servers, one.folder)
    two.places = type(one.places)(one.places.lake, str(one.folder / "others"), one.places.pipeline, one.places.table)
    refused(two, "CHECKPOINT_LOST")
    two.rebase()  # its user insists
    two.send(order("c"))
    two.run()
    refused(one, "TABLE_OWNED")
    assert two.ids() == ["a", "b", "c"]
    balanced(two)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("metadata", None, id="no metadata"),
        pytest.param("metadata", "", id="empty metadata"),
        pytest.param("offsets/1", "", id="empty offsets"),
        pytest.param("offsets/1", None, id="no offsets"),
        pytest.param("commits/0", None, id="no commit of before"),
        pytest.param("commits/1", "", id="empty commit"),
    ],
)
def test_a_torn_checkpoint_is_refused_or_replayed_and_rebased(lane: MakeLane, file: str, text: str | None) -> None:
    one = two_batches(lane)
    if file == "commits/0":
        one.forget_commit(1)  # batch 1 is unfinished, and the one before seems so too
    path = one.checkpoint(file)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink() if text is None else path.write_text(text)
    if (file, text) == ("offsets/1", None):
        refused(one, "CHECKPOINT_OLD")  # without it, this is a checkpoint of before batch 1
    else:
        assert file in refused(one, "CHECKPOINT_TORN").found
    one.rebase()
    one.send(order("c"))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


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
@pytest.mark.parametrize("records", [pytest.param(1, id="shorter"), pytest.param(5, id="longer")])
def test_a_topic_made_again_is_refused_whether_it_is_shorter_or_longer(lane: MakeLane, records: int) -> None:
    """a longer one has every offset of the checkpoint, and Spark would go on in the middle of it."""
    one = two_batches(lane)
    made_again(one)
    one.send(*(order(f"new{n}") for n in range(records)))
    refused(one, "TOPIC_RECREATED")
    one.rebase("table")
    one.run()
    assert one.ids() == sorted(["a", "b", *(f"new{n}" for n in range(records))])
    balanced(one)


@pytest.mark.slow
def test_a_topic_made_again_and_longer_while_a_run_is_at_work_stops_it_before_anything_is_written(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch at hand has its offsets: Spark's client reads on in the middle of the new topic."""
    one = two_batches(lane)
    one.send(order("c"))
    at, before = faults.at, one.versions()

    def again(point: str, batch: int, *more: str) -> None:
        if (point, batch) == ("after_offset_log", 2):
            made_again(one)
            one.send(*(order(f"new{n}") for n in range(5)))
        at(point, batch, *more)

    monkeypatch.setattr(faults, "at", again)
    error = one.stopped()
    monkeypatch.undo()
    assert (error.code, error.exit_code) == ("TOPIC_RECREATED", 5) and one.versions() == before
    refused(one, "TOPIC_RECREATED")
    one.rebase("earliest")
    one.run()
    assert one.ids() == sorted(["a", "b", *(f"new{n}" for n in range(5))])
    balanced(one)


@pytest.mark.slow
def test_expired_records_are_refused_with_their_offsets_and_left_out_only_when_accepted(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.send(order("lost"), order("gone"), order("c"))
    client = admin(one)
    client.delete_records({TopicPartition(one.contract.source.topic, 0): 5})
    client.close()
    error = refused(one, "RECORDS_EXPIRED")
    assert "partition 0 [3, 5): 2 offsets" in error.found
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[3, 5\)"):
        one.rebase("table")
    one.rebase("table", accept_gap=True)
    one.run()
    assert one.ids() == ["a", "b", "c"]
    verified = one.verified()
    assert verified.findings == () and verified.gaps_accepted == ((0, 3, 5),)


@pytest.mark.slow
def test_a_partition_added_is_read_and_one_lost_is_refused(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that tells no topic ids cannot be asked whether the topic is the same; its partitions tell."""
    monkeypatch.setattr("tests.integration.lane.describe", lambda kafka, name: replace(describe(kafka, name), id=""))
    one = two_batches(lane)
    client = admin(one)
    client.create_partitions({one.contract.source.topic: NewPartitions(2)})
    client.close()
    one.send(Record(order("c"), 1))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)
    made_again(one)
    assert "no partition 1 any more" in refused(one, "PARTITIONS_LOST").found
    with pytest.raises(Refused, match="PARTITIONS_LOST"):
        one.rebase()


@pytest.mark.slow
def test_a_broker_that_ends_before_the_checkpoint_is_refused(lane: MakeLane) -> None:
    one = two_batches(lane)
    lines = one.checkpoint("offsets/1").read_text().splitlines()
    one.checkpoint("offsets/2").write_text("\n".join([*lines[:2], lines[2].replace(":3", ":30")]))
    error = refused(one, "BROKER_BEHIND")
    assert "partition 0 ends at 3, 30 was read" in error.found


@pytest.mark.slow
def test_rebase_to_earliest_and_to_offsets_adds_nothing_twice(lane: MakeLane) -> None:
    """I3: whatever is read again, an id that is there is not added; the ledger keeps both epochs and balances."""
    one = two_batches(lane)
    one.rebase("earliest")
    one.send(order("c"))
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.replayed) == (4, 1, 3)
    one.rebase("offsets", {0: 1})
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"] and one.quarantine().count() == 1
    assert one.verified().epochs == 3
    balanced(one)


@pytest.mark.slow
def test_a_rebase_that_was_cut_off_is_finished_by_the_next(lane: MakeLane) -> None:
    """Between moving the old checkpoint aside and renaming the new one there is none: a start refuses, the next rebase finishes."""
    one = two_batches(lane)
    cut_off(one, "rebase_aside")
    refused(one, "CHECKPOINT_LOST")
    done = one.rebase("earliest")
    assert done.plan is None, "the prepared one was put in place"
    one.send(order("c"))
    (report,) = one.run()
    assert report.records_read == 1
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_a_rebase_that_was_cut_off_is_not_finished_on_another_table(lane: MakeLane) -> None:
    """A table made again may stand at the same version: what was prepared tells of the one before."""
    one = two_batches(lane)
    cut_off(one, "rebase_aside")
    state = one.log().state()
    assert state is not None
    another = str(uuid.uuid4())
    for path in Path(one.places.target, "_delta_log").glob("*.json"):  # no more than its id differs
        path.write_text(path.read_text().replace(state.id, another))
    for path in Path(one.places.target, "_delta_log").glob("*.crc"):
        path.unlink()
    done = one.rebase("earliest")
    assert done.plan is not None, "planned anew"


@pytest.mark.slow
def test_a_checkpoint_put_back_after_a_rebase_was_cut_off_goes_on_and_its_batches_count(lane: MakeLane) -> None:
    """The ledger has the rows of that rebase already; they ended nothing."""
    one = two_batches(lane)
    cut_off(one, "rebase_ledger", "earliest")
    (aside,) = Path(one.places.checkpoint).parent.glob("*.aside-*")
    shutil.rmtree(one.places.checkpoint, ignore_errors=True)
    aside.rename(one.places.checkpoint)
    one.send(order("c"), "[")
    (report,) = one.run()
    assert (report.number, report.inserted, report.quarantined) == (2, 1, 1)
    verified = one.verified()
    assert verified.findings == () and (verified.total.batches, verified.target_rows) == (3, 3)
    one.rebase()
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)


@pytest.mark.slow
def test_a_damaged_contract_beside_the_checkpoint_is_left_behind_by_a_rebase(lane: MakeLane) -> None:
    """And what it would have told of the event id the table's own property tells."""
    one = lane({"n": "STRING!"})
    one.send(order("a", n="1"))
    one.run()
    one.checkpoint("oncelake/contract.json").write_text("{")
    assert one.stopped().code == "CONTRACT_DAMAGED"
    one.rebase()
    before = one.contract
    one.contract = contract({"id": "STRING!", "n": "STRING!"}, topic=before.source.topic, event_id=("id", "n"))
    assert "the event id is" in refused(one, "CONTRACT_CHANGED").found
    one.contract = before
    one.send(order("c", n="1"))
    one.run()
    assert one.ids() == ["a", "c"]


@pytest.mark.slow
def test_a_rebase_says_first_what_it_does_not_mend(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')")
    one.sql("RESTORE TABLE {} TO VERSION AS OF 0", "quarantine")
    refused(one, "QUARANTINE_REWOUND")
    with pytest.raises(Refused, match="TXN_RETENTION"):
        one.rebase()


def test_a_table_that_another_writer_holds_is_locked_and_its_holder_is_named(lane: MakeLane) -> None:
    """I8: the lock beside the tables, not the checkpoint's: another checkpoint may not write them meanwhile either."""
    one = two_batches(lane)
    held = lock.hold(one.session, Path(one.places.root))
    error = refused(one, "LOCKED")
    assert socket.gethostname() in error.found and str(os.getpid()) in error.found
    with pytest.raises(Refused, match="LOCKED"):
        one.rebase()
    assert lock_file.holder(one.places.root) is not None, "a refusal in this JVM has dropped the kernel's lock"
    held.release()
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
def test_what_kafka_has_expired_is_no_silent_gap_where_the_table_holds_nothing_any_more(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.target().where("false").write.format("delta").mode("overwrite").save(one.places.target)
    client = admin(one)
    client.delete_records({TopicPartition(one.contract.source.topic, 0): 2})
    client.close()
    with pytest.raises(Refused, match=r"GAP_NOT_ACCEPTED.*partition 0 \[0, 2\)"):
        one.rebase("earliest")


def forget_tables(lane: Lane) -> None:
    """Delta keeps what it has read of a table; the next start has a JVM of its own."""
    jvm: Any = lane.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


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


@pytest.mark.slow
def test_a_broker_that_is_upgraded_and_tells_topic_ids_is_gone_on_with_and_its_id_is_remembered(lane: MakeLane) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "_id_text", lambda _: "")  # of before Kafka 2.8
        one = two_batches(lane)
        one.run()
    binding = one.checkpoint("oncelake/binding.json")
    assert json.loads(binding.read_text())["topic_id"] == ""
    one.send(order("c"), "{")
    one.run()
    assert json.loads(binding.read_text())["topic_id"] != ""
    assert one.ids() == ["a", "b", "c"]
    balanced(one)
    one.rebase()
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)
    made_again(one)
    refused(one, "TOPIC_RECREATED")


@pytest.mark.slow
def test_a_rebase_cut_off_where_table_and_ledger_were_gone_is_no_first_start(lane: MakeLane) -> None:
    """Between its two renames nothing else tells that there was anything."""
    one = two_batches(lane)
    shutil.rmtree(one.places.root)
    forget_tables(one)
    refused(one, "TABLE_REWOUND")
    cut_off(one, "rebase_aside")
    assert ".rebase-prepared" in refused(one, "CHECKPOINT_LOST").found
    assert one.rebase().plan is None, "the prepared one was put in place"
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)
