"""The direct writer's statements on a quarantine have the same outcome as those of Delta in Spark (I4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.delta import writer as spark_writer
from ingest.delta.batch_commit import FIRST_BATCH, Batch, BatchCommit, BatchId, Case, Mark, Snapshot, Snapshots
from ingest.delta.commit import Commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import At, DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_definitions import QUARANTINE_FIELDS
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.integration.lane import order
from tests.unit.verify.proof_lake import CONTRACT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.lane import Lane

pytestmark = pytest.mark.integration

NOWHERE = Snapshots(Snapshot("", 0, ""), Snapshot("", 0, ""))
SCHEMA = to_arrow_schema(T.StructType(list(QUARANTINE_FIELDS)), timezone="UTC")
POSITIONS = pa.schema([("source", pa.int16()), ("partition", pa.int32()), ("offset", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
Position = tuple[str, int, int]
# By number.
TOPICS = ("a", "b", "it's {b}")


def records(positions: Sequence[Position], batch: int) -> pa.Table:
    """Refused records of a batch. Every other one has headers."""
    at = datetime(2026, 1, 1, 0, 0, batch, 7, UTC)
    same = {"topic": "orders", "reason_code": "empty", "contract_hash": "h", "epoch": 1, "batch": batch}
    same |= {"state": "open", "state_changed_at": at, "state_by": f"batch {batch}"}
    rows = []
    for topic, partition, offset in positions:
        headers = [{"key": "h", "value": b"\x00"}, {"key": None, "value": None}] if offset % 2 else None
        number = TOPICS.index(topic)
        rows.append(
            {"topic_id": topic, "source": number, "partition": partition, "offset": offset, "value": b"{", "headers": headers, **same}
        )
    return pa.Table.from_pylist(rows, SCHEMA)


class Both:
    """The same statements by both writers, each on tables of its own."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.places = [Places(str(folder / name), str(folder / "checkpoints"), "shop", "orders") for name in ("spark", "direct")]
        self.direct = DirectWriter()
        for places in self.places:
            DirectWriter().create_tables(CONTRACT, places)
        self.number = FIRST_BATCH

    def about(self, case: Case = Batch()) -> BatchCommit:
        return BatchCommit(case, "shop", "orders", BatchId(1, self.number), "writer", NOWHERE)

    def log(self, places: Places) -> DeltaLog:
        return DeltaLog(LocalFiles(), places.quarantine)

    def merge(self, *positions: Position, reopen: bool = False) -> tuple[Commit, Commit]:
        """Insert records as the next batch; returns the commits."""
        self.number += 1
        rows, (spark, direct), about = records(positions, self.number), self.places, self.about()
        frame = self.session.createDataFrame(rows, T.StructType(list(QUARANTINE_FIELDS)))
        by_spark = spark_writer.merge_quarantine(frame, self.log(spark), lambda: about, reopen=reopen)
        by_direct = self.direct.merge_quarantine(self.log(direct), lambda: about, rows, reopen=reopen)
        return by_spark, by_direct

    def replayed(self, *positions: Position) -> None:
        """Mark these, at a time of their own each, through the protocol of both writers."""
        self.number += 1
        rows = [
            (TOPICS.index(topic), partition, offset, datetime(2026, 2, 1, 0, 0, offset, tzinfo=UTC))
            for topic, partition, offset in positions
        ]
        given = pa.Table.from_pylist([dict(zip(POSITIONS.names, row, strict=True)) for row in rows], POSITIONS)
        writers: list[TableWriter] = [SparkWriter(self.session), self.direct]
        for writer, places in zip(writers, self.places, strict=True):
            writer.mark_replayed(given, places, self.about(Mark()), "ingest seek")

    def rows(self) -> list[dict[str, Any]]:
        """The records, which must be the same in both tables and for both engines."""
        sql = "SELECT * FROM {t} ORDER BY topic_id, `partition`, `offset`, batch"
        by_spark, by_direct = (DataFusion().ask(sql, t=At(places.quarantine)) for places in self.places)
        assert by_direct == by_spark
        frame = self.session.read.format("delta").load(self.places[1].quarantine).orderBy("topic_id", "partition", "offset", "batch")
        assert [row.asDict(recursive=True) for row in frame.drop("state_changed_at", "kafka_timestamp").collect()] == [
            {name: value for name, value in row.items() if name not in ("state_changed_at", "kafka_timestamp")} for row in by_direct
        ]
        return by_direct


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Both:
    return Both(spark, tmp_path)


def test_records_enter_once_become_replayed_and_open_again_alike(both: Both) -> None:
    both.merge(("a", 0, 1), ("a", 0, 2), ("a", 1, 1), ("b", 0, 1))
    both.merge(("a", 0, 2), ("a", 0, 3), ("it's {b}", 0, 3))  # one is there already
    assert [row["batch"] for row in both.rows()] == [3, 3, 4, 3, 3, 4]
    both.replayed(("a", 0, 1), ("a", 0, 3), ("a", 7, 7), ("b", 0, 1))
    assert [row["state"] for row in both.rows()] == ["replayed", "open", "replayed", "open", "replayed", "open"]
    both.replayed(("a", 0, 1), ("a", 0, 2))  # the first keeps its time
    both.merge(("a", 0, 1), ("a", 0, 3), ("a", 1, 1), ("b", 0, 9), reopen=True)
    found = both.rows()
    assert [(row["state"], row["state_by"]) for row in found][:4] == [
        *[("open", "batch 7"), ("replayed", "ingest seek"), ("open", "batch 7"), ("open", "batch 3")]
    ]
    assert len(found) == 7 and found[0]["batch"] == 3, "what was stored first stays, besides its state"
    both.merge(("b", 0, 1), reopen=False)
    assert [row["state"] for row in both.rows() if row["topic_id"] == "b"] == ["replayed", "open"]


def test_a_batch_has_its_commit_under_its_id_also_if_the_quarantine_has_all_its_records(both: Both) -> None:
    both.merge(("a", 0, 1))
    for positions in ([("a", 0, 1)], []):
        commits = both.merge(*positions, reopen=True)
        for commit, places in zip(commits, both.places, strict=True):
            assert commit.batch_commit == both.about() and commit.transactions == {"oncelake/shop/orders": both.about().id.txn_version}
            assert both.log(places).newest() == commit.version
        assert not commits[1].added and not commits[1].removed
    with pytest.raises(RunStopped, match="FENCED"):
        both.direct.merge_quarantine(both.log(both.places[1]), both.about, records([], 1), reopen=True)


def test_marks_without_a_record_to_change_are_no_commit(both: Both) -> None:
    both.merge(("a", 0, 1))
    places = both.places[1]
    before = both.log(places).newest()
    both.replayed(("a", 0, 2), ("b", 0, 1))
    both.replayed()
    assert both.log(places).newest() == before


def test_a_direct_start_finishes_the_marks_of_a_re_read_that_a_crash_interrupted(lane: Callable[..., Lane]) -> None:
    """Step 5 of a start: the row was committed, its record in the quarantine still open."""
    one = lane({"n": "INT"}, rules=[{"name": "small", "check": "n < 5"}])
    one.send(order("a", n=1), order("b", n=7), order("c", n=8))
    one.run()
    one.contract = one.contract.model_copy(update={"rules": (one.contract.rules[0].model_copy(update={"check": "n < 8"}),)})
    one.seek("earliest")
    one.run()
    one.sql("UPDATE {} SET state = 'open' WHERE `offset` = 1", "quarantine")  # as a crash before the mark leaves it
    one.forget_tables()
    assert one.ids() == ["a", "b"] and [row["state"] for row in one.quarantine().collect()] == ["open", "open"]
    one.direct = True
    one.send(order("d", n=1))
    one.run()
    assert one.ids() == ["a", "b", "d"]
    found = {row["offset"]: row for row in one.quarantine().collect()}
    assert (found[1]["state"], found[2]["state"]) == ("replayed", "open")
    (row,) = one.target().where("id = 'b'").collect()
    assert found[1]["state_changed_at"] == row["_ingested_at"] and found[1]["state_by"] == "ingest run"
    one.balanced()
