"""Tables or checkpoints lost, restored or changed between two runs (I2, I6): the next start continues, or is refused until one seek."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from ingest.batch.batch import BatchReport, Table, process
from ingest.batch.direct import process_direct
from ingest.delta import writer
from ingest.delta.delta_sql import At, DataFusion, Unreadable
from ingest.delta.direct_writer import DirectWriter
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import current_states
from ingest.recovery.idle import Waiting, waiting
from ingest.run import lock_file, table_lock
from ingest.runtime.errors import Refused
from tests.integration.lane import Kind, Lane, Record, order

pytestmark = pytest.mark.integration

MakeLane = Callable[..., Lane]
Damage = Callable[[Lane], object]
slow = pytest.mark.slow


def nothing_to_do(lane: Lane) -> bool:
    kafka = KafkaOptions(lane.bootstrap_servers)
    found = waiting(lane.contract, lane.places, partial(current_states, kafka, lane.contract.source))
    return found == Waiting(0, epoch=False)


@slow
def test_with_checkpoints_deleted_between_runs_the_next_run_loses_and_duplicates_nothing(lane: MakeLane) -> None:
    """I2. `waiting` reports without Spark whether there is anything to read."""
    one = lane(partitions=2)
    one.send(order("a"), Record(order("b"), 1), "{")
    one.run()
    assert len(one.batches()[0][0].added) == 1, "a small batch leaves one file, even for two partitions"
    assert nothing_to_do(one)
    one.lose_checkpoints()
    one.send(order("b"), Record(order("c"), 1), Record("}", 1))
    assert not nothing_to_do(one)
    one.run()
    assert one.ids() == ["a", "b", "c"] and one.quarantine().count() == 2
    one.balanced()


def restored(table: str) -> Damage:
    def damage(one: Lane) -> None:
        version = one.batches(table)[0][0].version
        one.sql(f"RESTORE TABLE {{}} TO VERSION AS OF {version}", table)

    return damage


def overwritten(table: str) -> Damage:
    def damage(one: Lane) -> None:
        path = f"{one.places.root}/{table}"
        rows = one.session.read.format("delta").load(path).where("false").write.format("delta").mode("overwrite")
        rows.option("partitionOverwriteMode", "dynamic").save(path)  # no effect on a table without partitions

    return damage


def replaced(table: str) -> Damage:
    def damage(one: Lane) -> None:
        path = f"{one.places.root}/{table}"
        schema = one.session.read.format("delta").load(path).schema
        builder = DeltaTable.replace(one.session).location(path)
        for column in schema.fields:
            builder = builder.addColumn(column.name, column.dataType, nullable=column.nullable)
        builder.execute()

    return damage


def dropped(table: str) -> Damage:
    def damage(one: Lane) -> None:
        shutil.rmtree(f"{one.places.root}/{table}")
        one.forget_tables()

    return damage


def restored_from_copy(*tables: str) -> Damage:
    """Restore the tables from a copy made before the last run."""

    def damage(one: Lane) -> None:
        for table in tables:
            shutil.rmtree(f"{one.places.root}/{table}")
            shutil.copytree(one.folder / "kept" / table, f"{one.places.root}/{table}")
        one.forget_tables()

    return damage


def damaged(make: MakeLane, *damages: Damage) -> Lane:
    """A lane after two runs, each with a row and a poison record, and after the damage."""
    one = make()
    one.send(order("a"), "[")
    one.run()
    shutil.copytree(one.places.root, one.folder / "kept")
    one.send(order("b"), "{")
    one.run()
    for damage in damages:
        damage(one)
    return one


def mended(one: Lane) -> None:
    one.run()
    assert one.ids() == ["a", "b"] and one.quarantine().count() == 2
    one.balanced()
    one.send(order("a"), order("c"))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    one.balanced()


@slow
@pytest.mark.parametrize(
    ("damages", "code", "to"),
    [
        pytest.param([restored("target")], "TABLE_REWOUND", "table", id="target restored"),
        pytest.param([overwritten("target")], "TABLE_REWOUND", "table", id="target overwritten"),
        pytest.param([replaced("target")], "TABLE_REPLACED", "earliest", id="target replaced"),
        pytest.param([dropped("target")], "TABLE_REPLACED", "earliest", id="target dropped"),
        pytest.param([restored_from_copy("target")], "TABLE_REWOUND", "table", id="target restored from a copy"),
        pytest.param([restored("quarantine")], "QUARANTINE_REWOUND", "table", id="quarantine restored"),
        pytest.param([overwritten("quarantine")], "QUARANTINE_REWOUND", "table", id="quarantine overwritten"),
        pytest.param([replaced("quarantine")], "QUARANTINE_REWOUND", "table", id="quarantine replaced"),
        pytest.param([dropped("quarantine")], "QUARANTINE_REWOUND", "table", id="quarantine dropped"),
        pytest.param([restored_from_copy("quarantine")], "QUARANTINE_REWOUND", "table", id="quarantine restored from a copy"),
        pytest.param([restored("target"), restored("quarantine")], "TABLE_REWOUND", "table", id="both restored"),
        pytest.param([restored_from_copy("target", "quarantine")], "TABLE_REWOUND", "table", id="both restored from a copy"),
    ],
)
def test_a_table_that_lacks_committed_records_is_refused_until_a_seek_repairs_it(
    lane: MakeLane, damages: list[Damage], code: str, to: Kind
) -> None:
    """I6: afterwards every id and quarantined record exists once, and verify has no findings."""
    one = damaged(lane, *damages)
    assert f"ingest seek {one.places.name} --to {to}" in one.refused(code).remedy
    one.seek(to)
    mended(one)


@slow
def test_a_whole_lake_restored_from_a_copy_is_continued_where_it_ends(lane: MakeLane) -> None:
    """Nothing shows that there were more rows, and nothing has to: the missing records are re-read."""
    one = damaged(lane, restored_from_copy("target", "quarantine", "ledger"))
    one.lose_checkpoints()
    mended(one)


@slow
def test_a_foreign_table_and_expiring_transaction_ids_are_refused_even_by_a_seek(lane: MakeLane) -> None:
    one = lane()
    one.send(order("a"))
    one.session.range(3).selectExpr("cast(id as string) as id").write.format("delta").save(one.places.target)
    one.refused("TABLE_FOREIGN")
    with pytest.raises(Refused, match="TABLE_FOREIGN"):
        one.seek()
    shutil.rmtree(one.places.target)
    one.forget_tables()
    one.run()
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')")
    assert "UNSET TBLPROPERTIES" in one.refused("TXN_RETENTION").remedy
    with pytest.raises(Refused, match="TXN_RETENTION"):
        one.seek()
    one.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")
    one.send(order("c"))
    one.run()
    assert one.ids() == ["a", "c"]


@slow
def test_a_table_locked_by_another_writer_is_refused_and_the_holder_is_named(lane: MakeLane) -> None:
    """I8: on a local disk, Delta excludes other writers only within the same JVM."""
    one = lane()
    writer.create_tables(one.session, one.contract, one.places)
    lock = table_lock.hold(one.session, Path(one.places.root))
    error = one.refused("LOCKED")
    assert socket.gethostname() in error.found and str(os.getpid()) in error.found
    with pytest.raises(Refused, match="LOCKED"):
        one.seek()
    assert lock_file.holder(one.places.root) is not None, "the refused attempt in this JVM released the kernel's lock"
    lock.release()
    one.send(order("a"))
    one.run()
    assert one.ids() == ["a"]


@slow
def test_a_run_whose_checkpoint_is_deleted_opens_a_new_epoch_by_itself(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """I2: a checkpoint is only a cache, even during a run."""
    one = lane()
    one.send(order("a"), "{", order("b"))
    checkpoints: list[str] = []

    def deleted_once(records: DataFrame, number: int, table: Table, *writer: DirectWriter) -> BatchReport:
        if len(checkpoints) == 1:
            shutil.rmtree(checkpoints[0])
        checkpoints.append(table.epoch.checkpoint)
        return process_direct(records, number, table, *writer) if writer else process(records, number, table)

    for name in ("process", "process_direct"):
        monkeypatch.setattr(f"ingest.run.table_query.{name}", deleted_once)
    assert [report.epoch for report in one.run(max_records=1)] == [1, 2, 2]
    assert one.ids() == ["a", "b"] and one.quarantine().count() == 1
    one.balanced()


@slow
def test_a_batch_that_failed_between_its_commits_is_rolled_back_and_repeated_in_a_new_epoch(
    lane: MakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I7: a temporary failure, such as a lost executor, does not end the run."""
    one = lane()
    one.send(order("a"), "{")
    one.arm(monkeypatch, "after_quarantine:raise@2")
    assert [report.epoch for report in one.run()] == [2]
    assert one.ids() == ["a"] and [row["epoch"] for row in one.quarantine().collect()] == [2]
    one.balanced()


@pytest.mark.slow
def test_a_table_with_a_feature_that_deltalake_lacks_is_read_through_spark(lane: MakeLane) -> None:
    one = lane()
    one.auto = True
    one.send(order("a"))
    one.run()
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    with pytest.raises(Unreadable, match="TypeWidening"):
        DataFusion().ask("SELECT 1 FROM {target}", target=At(one.places.target))
    one.send(order("b"))
    one.run()
    one.seek("earliest")
    one.run()
    assert one.ids() == ["a", "b"]
