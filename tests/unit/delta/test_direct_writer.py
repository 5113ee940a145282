"""The direct writer's statements and commits, read back by deltalake: exclusive, fenced, refused on another table (I8)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import FENCE, FIRST_BATCH, SEEK, BatchCommit, BatchId, Snapshot, Snapshots
from ingest.delta.data_file import write_file
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.direct_fit import listed
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Committed, Operation, Outrun, put
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_row import SCHEMA_VERSION, LedgerRow
from ingest.runtime.errors import IngestError, InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit

ADD = Operation("WRITE", {"mode": "Append"}, {})
NOWHERE = Snapshots(Snapshot("", 0, ""), Snapshot("", 0, ""))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")


@pytest.fixture
def writer(places: Places) -> DirectWriter:
    """A writer with the tables of the contract."""
    found = DirectWriter()
    found.create_tables(CONTRACT, places)
    return found


def statement(epoch: int, number: int = FENCE, kind: Any = "epoch") -> BatchCommit:
    ranges = (OffsetRange(0, 0, 5),) if kind == "batch" else ()
    return BatchCommit(kind, "shop", "orders", BatchId(epoch, number), f"writer {epoch}", NOWHERE, "hash", TopicId("orders", "id"), ranges)


def test_created_tables_have_the_contracts_columns_and_properties(places: Places, writer: DirectWriter) -> None:
    target = DeltaTable(places.target)
    assert (target.schema().fields[0].name, target.schema().fields[0].nullable) == ("id", False)
    configuration = target.metadata().configuration
    assert configuration["delta.isolationLevel"] == "Serializable" and "_offset" in configuration["delta.dataSkippingStatsColumns"]
    assert DeltaLog(LocalFiles(), places.quarantine).exists() and DeltaLog(LocalFiles(), places.ledger).exists()
    writer.create_tables(CONTRACT, places)
    assert DeltaTable(places.target).version() == 0


def test_of_two_creations_at_once_one_table_remains_and_both_writers_know_it(places: Places) -> None:
    first, second = DirectWriter(), DirectWriter()
    first.create_tables(CONTRACT, places)
    behind = LiveTable(LocalFiles(), places.target)  # as the second saw it before: no table
    assert isinstance(put(LocalFiles(), behind, "{}", ADD, []), Outrun)
    second.create_tables(CONTRACT, places)
    assert first.table(places.target).snapshot == second.table(places.target).snapshot


def test_a_fence_carries_its_transaction_id_and_an_older_or_equal_one_is_refused(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).target
    commit = writer.fence(log, statement(3))
    assert commit is not None and commit.batch_commit is not None and commit.batch_commit.id == BatchId(3, FENCE)
    assert DeltaTable(places.target).transaction_version("oncelake/shop/orders") == 3 << 32
    for epoch in (2, 3):
        assert DirectWriter().fence(log, replace(statement(epoch), writer="another")) is None
    assert DeltaTable(places.target).version() == 1


def test_a_fenced_writer_commits_nothing_more_although_it_has_looked_before(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).target
    assert writer.fence(log, statement(1)) is not None
    assert DirectWriter().fence(log, statement(2)) is not None
    with pytest.raises(IngestError, match=r"FENCED.*epoch 2"):
        writer.commit_seek(log, statement(1, SEEK, "seek"))
    assert DeltaTable(places.target).version() == 2


def test_a_commit_between_look_and_put_is_noticed_and_decided_upon_again(places: Places, writer: DirectWriter) -> None:
    """I8: the exclusive create fails, and `decide` sees the files of the other commit."""
    seen: list[int] = []

    def decide(table: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        seen.append(len(table.live))
        if len(seen) == 1:
            write_deltalake(places.ledger, _ledger_table([_row(1)]), mode="append")
        return ADD, []

    commit = writer.try_commit(places.ledger, lambda: statement(1), decide)
    assert commit is not None and commit.version == 2 and seen == [0, 1]


def test_an_error_after_the_commit_was_stored_is_no_second_commit(places: Places, writer: DirectWriter) -> None:
    class Unlucky(LocalFiles):
        """Stores the file and then reports an error, as an object store may."""

        def create(self, path: str, data: bytes, mode: int = 0o666) -> bool:
            super().create(path, data, mode)
            raise OSError("no answer")

    table = writer.table(places.target)
    table.look()
    outcome = put(Unlucky(), table, statement(1), ADD, [])
    assert isinstance(outcome, Committed) and table.version == 1
    assert DeltaTable(places.target).version() == 1


def test_a_store_that_stores_nothing_stops_the_statement_after_a_few_attempts(places: Places, writer: DirectWriter) -> None:
    attempts: list[str] = []

    class Broken(LocalFiles):
        """Stores nothing."""

        def create(self, path: str, data: bytes, mode: int = 0o666) -> bool:
            attempts.append(path)
            raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        put(Broken(), writer.table(places.target), statement(1), ADD, [])
    assert 1 < len(attempts) < 10 and DeltaTable(places.target).version() == 0


@pytest.mark.parametrize("how", ["dropped and made again", "restored", "a copy put back"])
def test_a_table_that_is_another_one_is_refused_at_the_next_look(how: str, places: Places, writer: DirectWriter) -> None:
    """I6: also with as many versions as before."""
    log = Logs.of(places).target
    copy = Path(places.root) / "copy"
    shutil.copytree(places.target, copy)
    assert writer.fence(log, statement(1)) is not None
    if how == "restored":
        DeltaTable(places.target).restore(0)
    else:
        shutil.rmtree(places.target)
        if how.startswith("a copy"):
            copy.rename(places.target)
        else:
            other = DirectWriter()
            other.create_tables(CONTRACT, places)
            assert other.fence(log, statement(1)) is not None
    with pytest.raises(IngestError, match="TABLE_REWOUND"):
        writer.commit_seek(log, statement(1, SEEK, "seek"))


def test_a_table_made_again_between_look_and_put_gets_no_commit_of_ours(places: Places, writer: DirectWriter) -> None:
    log, other = Logs.of(places).target, DirectWriter()
    assert writer.fence(log, statement(1)) is not None

    def decide(_: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        shutil.rmtree(places.target)
        other.create_tables(CONTRACT, places)
        assert other.fence(log, statement(5)) is not None
        return ADD, []

    with pytest.raises(IngestError, match="TABLE_REWOUND"):
        writer.try_commit(places.target, lambda: statement(1, SEEK, "seek"), decide)
    assert DeltaTable(places.target).transaction_version("oncelake/shop/orders") == 5 << 32


def test_a_delete_of_a_fenced_writer_is_no_delete_of_nothing(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).quarantine
    assert writer.fence(log, statement(1)) is not None and DirectWriter().fence(log, statement(2)) is not None
    with pytest.raises(IngestError, match="FENCED"):
        writer.delete(log, statement(1, SEEK, "rollback"), "true")


def test_a_ledger_that_was_put_back_during_a_run_takes_its_rows_all_the_same(places: Places, writer: DirectWriter) -> None:
    """The ledger is a projection: it refuses nothing."""
    writer.merge_ledger(places, statement(1, kind="ledger"), [vars(_row(2))])
    DeltaTable(places.ledger).restore(0)
    writer.merge_ledger(places, statement(1, kind="ledger"), [vars(_row(2)), vars(_row(3))])
    assert sorted(DeltaTable(places.ledger).to_pyarrow_table()["batch"].to_pylist()) == [2, 3]


def test_a_maximum_of_time_that_another_engine_has_cut_excludes_nothing(places: Places, writer: DirectWriter) -> None:
    stats = {
        "numRecords": 1,
        "minValues": {"committed_at": "2026-01-01T00:00:00.000Z"},
        "maxValues": {"committed_at": "2026-01-01T00:00:00.000Z"},
    }
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}
    table = writer.table(places.ledger)
    table.look()
    put(LocalFiles(), table, "{}", ADD, [{"add": add}])
    late = datetime(2026, 1, 1, microsecond=999, tzinfo=UTC)
    for found in (table, DirectWriter().table(places.ledger)):
        assert found.live["x.parquet"].greatest["committed_at"] >= late


def test_an_empty_version_file_is_damage_and_no_commit(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).target
    assert writer.fence(log, statement(1)) is not None
    (Path(places.target) / "_delta_log" / f"{2:020}.json").touch()
    with pytest.raises(IngestError, match="LOG_TORN"):
        writer.commit_seek(log, statement(1, SEEK, "seek"))


def test_the_ledger_takes_a_row_once_and_sets_what_stood(places: Places, writer: DirectWriter) -> None:
    rows = [_row(batch) for batch in (2, 3)]
    writer.merge_ledger(places, statement(1, kind="ledger"), [vars(row) for row in rows])
    again = [replace(rows[1], stood=4), _row(4)]
    writer.merge_ledger(places, statement(1, kind="ledger"), [vars(row) for row in again])
    writer.merge_ledger(places, statement(1, kind="ledger"), [vars(row) for row in rows])
    found = DeltaTable(places.ledger).to_pyarrow_table().select(["batch", "stood"]).to_pylist()
    assert sorted((row["batch"], row["stood"]) for row in found) == [(2, None), (3, 4), (4, None)]


def test_a_delete_writes_the_other_rows_of_a_file_again_with_their_nested_values(places: Places, writer: DirectWriter) -> None:
    """The roll-back of a start: records of an uncommitted batch leave the quarantine."""
    log = Logs.of(places).quarantine
    schema = pa.schema(DeltaTable(places.quarantine).schema())
    rows = [{**_record(offset), "headers": [{"key": "h", "value": b"\x00"}]} for offset in range(4)]
    write_deltalake(places.quarantine, pa.Table.from_pylist(rows, schema), mode="append")
    assert writer.fence(log, statement(1)) is not None
    commit = writer.delete(log, statement(1, SEEK, "rollback"), "epoch < 5 AND `offset` >= 2")
    assert commit is not None and commit.deleted_rows == 2
    left = DeltaTable(places.quarantine).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in left) == [0, 1] and left[0]["headers"] == [{"key": "h", "value": b"\x00"}]
    assert writer.delete(log, statement(1, FIRST_BATCH, "rollback"), "`offset` > 9") is None


def test_a_clustered_table_is_created_with_its_clustering_columns_as_spark_writes_them(places: Places) -> None:
    clustered = Contract.model_validate({**CONTRACT.model_dump(exclude_defaults=True), "layout": {"cluster_by": ["_ingested_at", "id"]}})
    writer = DirectWriter()
    writer.create_tables(clustered, places)
    actions = [json.loads(line) for line in Path(writer.table(places.target).path_of(0)).read_text().splitlines()]
    (protocol,) = (action["protocol"] for action in actions if "protocol" in action)
    assert protocol == {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "invariants", "clustering", "domainMetadata"],
    }
    (domain,) = (action["domainMetadata"] for action in actions if "domainMetadata" in action)
    assert json.loads(domain["configuration"])["clusteringColumns"] == [["_ingested_at"], ["id"]] and not domain["removed"]
    state = writer.table(places.target).state
    assert state is not None and state.cluster_by == ("_ingested_at", "id") and {*state.cluster_by} <= {*listed(state)}
    assert writer.fence(Logs.of(places).target, statement(1)) is not None


def test_the_rows_of_a_batch_are_inserts_in_the_change_data_feed(places: Places) -> None:
    feed = Contract.model_validate({**CONTRACT.model_dump(exclude_defaults=True), "properties": {"delta.enableChangeDataFeed": True}})
    writer = DirectWriter()
    writer.create_tables(feed, places)
    log = Logs.of(places).target
    assert writer.fence(log, statement(1)) is not None
    schema = pa.schema(DeltaTable(places.target).schema())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    own = {"_partition": 0, "_kafka_timestamp": at, "_ingested_at": at, "_epoch": 1, "_batch": 2}
    rows = pa.Table.from_pylist([{"id": n, "_offset": n, **own} for n in range(3)], schema)
    file = write_file(places.target, rows, ("id",))
    writer.commit(log, lambda: statement(1, FIRST_BATCH, "batch"), lambda _: (ADD, [file.addition()]))
    changes = pa.table(DeltaTable(places.target).load_cdf(starting_version=1).read_all()).to_pylist()
    assert sorted((row["id"], row["_change_type"]) for row in changes) == [(n, "insert") for n in range(3)]


def test_a_statement_that_writes_files_of_a_change_data_feed_again_is_unfit_and_writes_nothing(
    places: Places, writer: DirectWriter
) -> None:
    """A reader of the feed would take every row of the file for a delete and an insert."""
    schema = pa.schema(DeltaTable(places.quarantine).schema())
    write_deltalake(places.quarantine, pa.Table.from_pylist([_record(0), _record(1)], schema), mode="append")
    DeltaTable(places.quarantine).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    log = Logs.of(places).quarantine
    assert writer.fence(log, statement(1)) is not None
    before = sorted(Path(places.quarantine).rglob("*"))
    with pytest.raises(InvalidInput, match=r"DIRECT_UNFIT.*enableChangeDataFeed"):
        writer.delete(log, statement(1, SEEK, "rollback"), "`offset` = 1")
    assert sorted(Path(places.quarantine).rglob("*")) == before
    assert writer.delete(log, statement(1, SEEK, "rollback"), "`offset` = 7") is None, "nothing to write again"


def test_a_table_that_needs_another_writer_is_refused_before_anything_is_written(places: Places) -> None:
    strange = CONTRACT.model_copy(update={"properties": {"delta.enableRowTracking": "true"}})
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        DirectWriter().create_tables(strange, places)
    assert not Path(places.target).exists()


def _row(batch: int) -> LedgerRow:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    counts = (0, 5, 5, 5, 0, 0, 0)
    return LedgerRow(SCHEMA_VERSION, "batch", "shop", "orders", 1, batch, "orders", "id", 0, *counts, None, None, 1, "hash", at)


def _ledger_table(rows: Sequence[LedgerRow]) -> pa.Table:
    from tests.unit.verify.proof_lake import LEDGER

    return pa.Table.from_pylist([vars(row) for row in rows], LEDGER)


def _record(offset: int) -> dict[str, Any]:
    texts = {"topic": "orders", "topic_id": "id", "reason_code": "empty", "contract_hash": "h", "state": "open", "state_by": "ingest run"}
    return {**texts, "partition": 0, "offset": offset, "epoch": 1, "batch": 2, "state_changed_at": datetime(2026, 1, 1, tzinfo=UTC)}


def test_the_log_tells_what_a_statement_was(places: Places, writer: DirectWriter) -> None:
    assert writer.fence(Logs.of(places).target, statement(1)) is not None
    newest = DeltaTable(places.target).history(1)[0]
    assert newest["operation"] == "WRITE" and "isBlindAppend" not in newest
    assert json.loads(newest["userMetadata"])["kind"] == "epoch"
