"""The direct writer's statements and commits, read back by deltalake: exclusive, fenced, refused on another table (I8)."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.contract.definition import Contract
from ingest.delta import live_table
from ingest.delta.batch_commit import (
    FENCE,
    FIRST_BATCH,
    SEEK,
    Batch,
    BatchCommit,
    BatchId,
    Case,
    Fence,
    Mark,
    Project,
    RollBack,
    Seek,
    Snapshot,
    Snapshots,
    State,
    Upkeep,
)
from ingest.delta.data_file import read_file, write_file
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.direct_fit import listed
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.held_rows import updated
from ingest.delta.live_table import LiveTable
from ingest.delta.posting import Key, Posting, Sums
from ingest.delta.put import PAUSES_S, Committed, NotStored, Operation, OutcomeUnknown, Outrun, nothing_stored, put
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_line import Line
from ingest.recovery.look_back import LookBack
from ingest.runtime.errors import IngestError, InvalidInput, Refused
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


def _nobody_waits(_: float) -> None:
    """No pause between two attempts."""


ABOUT = BatchCommit(Upkeep(), "shop", "orders")


def statement(epoch: int, number: int = FENCE, case: Case = Fence()) -> BatchCommit:
    postings = (Posting(Key(epoch, number, 0, 0), "batch", OffsetRange(0, 0, 5)),) if isinstance(case, Batch) else ()
    id, sources = BatchId(epoch, number), (TopicId("orders", "id"), TopicId("returns", "another"))
    return BatchCommit(case, "shop", "orders", id, f"writer {epoch}", NOWHERE, "hash", sources, postings)


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
    assert isinstance(put(LocalFiles(), behind, ABOUT, ADD, []), Outrun)
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
        writer.post(log, statement(1, SEEK, Seek("")))
    assert DeltaTable(places.target).version() == 2


def test_a_commit_between_look_and_put_is_noticed_and_decided_upon_again(places: Places, writer: DirectWriter) -> None:
    """I8: the exclusive create fails, and `decide` sees the files of the other commit."""
    seen: list[int] = []

    def decide(table: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        seen.append(len(table.live))
        if len(seen) == 1:
            write_deltalake(places.ledger, ledger_table(1), mode="append")
        return ADD, []

    commit = writer.try_commit(places.ledger, lambda: statement(1), decide)
    assert commit is not None and commit.version == 2 and seen == [0, 1]


def test_what_a_statement_has_judged_is_the_very_snapshot_that_it_replaces(places: Places, writer: DirectWriter) -> None:
    """I8: somebody adds a row between the judgement, which reads the table by itself, and the writer's own look."""
    judged: list[int] = []

    def still() -> BatchCommit:
        judged.append(writer.looked_at(places.ledger).version)
        if len(judged) == 1:
            write_deltalake(places.ledger, ledger_table(1), mode="append")
        return statement(1)

    shadow = Places(f"{places.lake}/shadow", places.checkpoints, "shop", "orders")
    writer.create_tables(CONTRACT, shadow)
    commit = writer.overwrite(Logs.of(places).ledger, shadow.ledger, still)
    assert commit.version == judged[-1] + 1 and judged == [0, 1]
    assert len(commit.removed) == 1 and DeltaTable(places.ledger).to_pyarrow_table().num_rows == 0


class Unlucky(LocalFiles):
    """Reports so many errors when the name of a new file is brought onto the disk. `synced` are the calls that succeeded."""

    def __init__(self, errors: int) -> None:
        self.errors, self.synced = errors, 0

    def sync_name(self, path: str) -> None:
        if self.errors > 0:
            self.errors -= 1
            raise OSError(errno.EIO, "no answer", path)
        self.synced += 1


def test_an_error_after_the_commit_was_stored_is_no_second_commit(places: Places, writer: DirectWriter) -> None:
    table, files = writer.table(places.target), Unlucky(1)
    table.look()
    outcome = put(files, table, statement(1), ADD, [], _nobody_waits)
    assert isinstance(outcome, Committed) and table.version == 1
    assert DeltaTable(places.target).version() == 1


def test_a_commit_whose_name_is_not_on_the_disk_counts_only_after_another_sync(places: Places, writer: DirectWriter) -> None:
    files, waited = Unlucky(3), list[float]()
    assert isinstance(put(files, writer.table(places.target), statement(1), ADD, [], waited.append), Committed)
    assert files.synced == 1 and waited == list(PAUSES_S[:2])


def test_a_commit_whose_name_never_gets_onto_the_disk_has_an_unknown_outcome(places: Places, writer: DirectWriter) -> None:
    """After a power failure it may be gone: it must not count as committed, and its data files must stay."""
    with pytest.raises(OutcomeUnknown) as error:
        put(Unlucky(99), writer.table(places.target), statement(1), ADD, [], _nobody_waits)
    assert error.value.errno == errno.EIO and not nothing_stored(error.value)


def test_another_commit_with_the_same_content_is_not_taken_for_our_own(
    places: Places, writer: DirectWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: two processes may put the same statement in the same millisecond. Only the one whose file it is has committed."""
    monkeypatch.setattr("ingest.delta.put.time", SimpleNamespace(time=lambda: 1.0))
    tables = [LiveTable(LocalFiles(), places.target) for _ in range(2)]
    for table in tables:
        table.load()
    outcomes = [put(LocalFiles(), table, statement(1), ADD, [], _nobody_waits) for table in tables]
    assert isinstance(outcomes[0], Committed) and outcomes[1] == Outrun(1)


def test_a_version_that_cannot_be_read_has_an_unknown_outcome(places: Places, writer: DirectWriter) -> None:
    class Deaf(LocalFiles):
        """Stores nothing and reads nothing."""

        def create(self, path: str, data: bytes, mode: int = 0o666) -> bool:
            raise OSError("no answer")

        def read(self, path: str) -> bytes | None:
            raise OSError("no answer")

    with pytest.raises(OutcomeUnknown) as error:
        put(Deaf(), writer.table(places.target), statement(1), ADD, [], _nobody_waits)
    assert not nothing_stored(error.value)


def test_a_store_that_stores_nothing_stops_the_statement_after_growing_pauses(places: Places, writer: DirectWriter) -> None:
    attempts: list[str] = []
    waited: list[float] = []

    class Broken(LocalFiles):
        """Stores nothing."""

        def create(self, path: str, data: bytes, mode: int = 0o666) -> bool:
            attempts.append(path)
            raise OSError(errno.ENOSPC, "no space", path)

    with pytest.raises(NotStored, match="no space") as error:
        put(Broken(), writer.table(places.target), statement(1), ADD, [], waited.append)
    assert error.value.errno == errno.ENOSPC and nothing_stored(error.value), "the run says that the disk is full"
    assert 1 < len(attempts) < 10 and waited == sorted(waited) and 1 < sum(waited) < 5
    assert DeltaTable(places.target).version() == 0


def test_a_fenced_and_an_outrun_statement_have_surely_stored_nothing(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).target
    assert writer.fence(log, statement(1)) is not None and DirectWriter().fence(log, statement(2)) is not None
    with pytest.raises(IngestError, match="FENCED") as fenced:
        writer.post(log, statement(1, SEEK, Seek("")))
    another = DirectWriter()

    def decide(_: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        another.unfenced(places.quarantine, ABOUT, lambda _: (ADD, []))
        return ADD, []

    with pytest.raises(IngestError, match="COMMIT_OUTRUN") as outrun:
        writer.unfenced(places.quarantine, ABOUT, decide)
    assert nothing_stored(fenced.value) and nothing_stored(outrun.value) and not nothing_stored(KeyboardInterrupt())


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
    with pytest.raises(IngestError, match=r"(?s)TABLE_REWOUND.*ingest seek shop\.orders --to table"):
        writer.post(log, statement(1, SEEK, Seek("")))


def test_a_table_made_again_between_look_and_put_gets_no_commit_of_ours(places: Places, writer: DirectWriter) -> None:
    log, other = Logs.of(places).target, DirectWriter()
    assert writer.fence(log, statement(1)) is not None

    def decide(_: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        shutil.rmtree(places.target)
        other.create_tables(CONTRACT, places)
        assert other.fence(log, statement(5)) is not None
        return ADD, []

    with pytest.raises(IngestError, match="TABLE_REWOUND"):
        writer.try_commit(places.target, lambda: statement(1, SEEK, Seek("")), decide)
    assert DeltaTable(places.target).transaction_version("oncelake/shop/orders") == 5 << 32


def test_a_delete_of_a_fenced_writer_is_no_delete_of_nothing(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).quarantine
    assert writer.fence(log, statement(1)) is not None and DirectWriter().fence(log, statement(2)) is not None
    with pytest.raises(IngestError, match="FENCED"):
        writer.delete(log, statement(1, SEEK, RollBack()), "true")


def test_a_ledger_that_was_put_back_during_a_run_takes_its_rows_all_the_same(places: Places, writer: DirectWriter) -> None:
    """The ledger is a projection: it refuses nothing."""
    writer.append_ledger(places, ABOUT, lines(2))
    DeltaTable(places.ledger).restore(0)
    writer.append_ledger(places, ABOUT, lines(2, 3))
    assert sorted(DeltaTable(places.ledger).to_pyarrow_table()["batch"].to_pylist()) == [2, 3]


@pytest.mark.parametrize("cut", ["2026-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
def test_a_maximum_of_time_that_another_engine_has_cut_excludes_nothing(cut: str, places: Places, writer: DirectWriter) -> None:
    """Nor does the last millisecond of the calendar, which has no later one, stop the table."""
    stats = {"numRecords": 1, "minValues": {"committed_at": cut}, "maxValues": {"committed_at": cut}}
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}
    table = writer.table(places.ledger)
    table.look()
    put(LocalFiles(), table, ABOUT, ADD, [{"add": add}])
    late = datetime.fromisoformat(cut).replace(tzinfo=UTC) + timedelta(microseconds=999)
    for found in (table, DirectWriter().table(places.ledger)):
        assert found.live["x.parquet"].greatest.get("committed_at", late) >= late


def test_an_empty_version_file_is_damage_and_no_commit(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).target
    assert writer.fence(log, statement(1)) is not None
    (Path(places.target) / "_delta_log" / f"{2:020}.json").touch()
    with pytest.raises(IngestError, match="LOG_TORN"):
        writer.post(log, statement(1, SEEK, Seek("")))


def test_lines_are_added_to_the_ledger_in_their_tables_types(places: Places, writer: DirectWriter) -> None:
    """Sums of offsets have more digits than a BIGINT. No transaction id: another process may add the same lines."""
    writer.append_ledger(places, ABOUT, lines(2, 3))
    commit = DeltaLog(LocalFiles(), places.ledger).commit(1)
    assert (commit.operation, commit.transactions, commit.batch_commit) == ("WRITE", {}, ABOUT)
    found = DeltaTable(places.ledger).to_pyarrow_table()
    assert [Line.of(row).row() for row in found.to_pylist()] == lines(2, 3)
    assert (str(found.schema.field("target_offsets").type), str(found.schema.field("target_hash").type)) == (
        "decimal128(38, 0)",
        "decimal128(20, 0)",
    )


def test_the_postings_of_an_operation_are_in_its_commit_behind_those_that_it_was_given(places: Places, writer: DirectWriter) -> None:
    """I4: what a statement changes and what it says of it are one commit."""
    before, own = (Posting(Key(1, number, 0, 0), "batch", target=Sums(1, 2, 3)) for number in (2, 3))
    about = replace(statement(1, FIRST_BATCH, Batch()), postings=(before,))
    commit = writer.commit(Logs.of(places).target, lambda: about, lambda _: (replace(ADD, postings=(own,)), []))
    assert commit.batch_commit is not None and commit.batch_commit.postings == (before, own)
    posted = writer.post(Logs.of(places).target, replace(statement(1, FIRST_BATCH + 1, State()), postings=(own,)))
    assert posted.batch_commit is not None and (posted.batch_commit.kind, posted.batch_commit.postings) == ("state", (own,))
    with pytest.raises(IngestError, match="FENCED"):
        writer.post(Logs.of(places).target, statement(1, FIRST_BATCH + 1, State()))


@pytest.mark.parametrize(("case", "fenced"), [(Fence(), True), (State(), True), (Mark(), False), (Upkeep(), False), (Project(), False)])
def test_only_a_statement_that_must_happen_once_has_a_transaction_id(
    places: Places, writer: DirectWriter, case: Case, fenced: bool
) -> None:
    put(LocalFiles(), table := writer.table(places.target), statement(1, FIRST_BATCH, case), ADD, [])
    assert table.log.commit(1).transactions == ({"oncelake/shop/orders": (1 << 32) + FIRST_BATCH} if fenced else {})


def test_a_delete_writes_the_other_rows_of_a_file_again_with_their_nested_values(places: Places, writer: DirectWriter) -> None:
    """The roll-back of a start: records of an uncommitted batch leave the quarantine."""
    log = Logs.of(places).quarantine
    schema = pa.schema(DeltaTable(places.quarantine).schema())
    rows = [{**_record(offset), "headers": [{"key": "h", "value": b"\x00"}]} for offset in range(4)]
    write_deltalake(places.quarantine, pa.Table.from_pylist(rows, schema), mode="append")
    assert writer.fence(log, statement(1)) is not None
    commit = writer.delete(log, statement(1, SEEK, RollBack()), "epoch < 5 AND `offset` >= 2")
    assert commit is not None and commit.deleted_rows == 2
    left = DeltaTable(places.quarantine).to_pyarrow_table().to_pylist()
    assert sorted(row["offset"] for row in left) == [0, 1] and left[0]["headers"] == [{"key": "h", "value": b"\x00"}]
    assert writer.delete(log, statement(1, FIRST_BATCH, RollBack()), "`offset` > 9") is None


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize(
    ("uri", "name"), [("a%20b.parquet", "a b.parquet"), ("a b.parquet", "a b.parquet"), ("a%2520b%C3%A9.parquet", "a%20bé.parquet")]
)
def test_a_file_is_removed_by_the_very_text_by_which_the_log_names_it(
    uri: str, name: str, reloaded: bool, places: Places, writer: DirectWriter
) -> None:
    """Delta-rs keeps a file live that is removed by another spelling of its name."""
    _renamed(places.quarantine, uri, Path(places.quarantine) / name)
    log = Logs.of(places).quarantine
    assert reloaded or writer.fence(log, statement(1)) is not None
    commit = (DirectWriter() if reloaded else writer).delete(log, statement(2, SEEK, RollBack()), "`offset` = 0")
    assert commit is not None and commit.deleted_rows == 1
    assert DeltaTable(places.quarantine).to_pyarrow_table()["offset"].to_pylist() == [1]


@pytest.mark.parametrize("prefix", ["file://", "file:", ""])
def test_files_outside_of_the_table_are_read_and_taken_off_the_log_and_stay_on_the_disk(
    prefix: str, places: Places, writer: DirectWriter, tmp_path: Path
) -> None:
    """A shallow clone names the files of its source by absolute URIs. They are not this table's to delete."""
    elsewhere = tmp_path / "the source" / "part é.parquet"
    elsewhere.parent.mkdir()
    uri = f"{prefix}{quote(str(elsewhere))}"
    _renamed(places.quarantine, uri, elsewhere)
    table = writer.table(places.quarantine)
    table.look()
    again = DirectWriter().table(places.quarantine)
    for found in (table, again):
        (file,) = found.live.values()
        assert (file.uri, Path(file.path)) == (uri, elsewhere)
        assert read_file(found.path, file.path, pa.schema([("offset", pa.int64())]))["offset"].to_pylist() == [0, 1]
    (file,) = table.live.values()
    put(LocalFiles(), table, ABOUT, ADD, [file.removal(0)])
    again.look()
    assert not table.live and not again.live and elsewhere.exists()
    assert not pa.table(DeltaTable(places.quarantine).get_add_actions()).num_rows


def test_a_table_with_files_in_another_store_is_refused(places: Places, writer: DirectWriter) -> None:
    _renamed(places.quarantine, "s3://bucket/a.parquet", Path(places.quarantine) / "a.parquet")
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        writer.fence(Logs.of(places).quarantine, statement(1))
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        writer.table(places.quarantine)


def _altered(places: Places, **changed: Any) -> None:
    """Another writer changes the target's metadata."""
    about = DeltaTable(places.target).metadata()
    action = {"id": str(about.id), "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
    action |= {"schemaString": DeltaTable(places.target).schema().to_json(), "configuration": about.configuration, **changed}
    other = DirectWriter()
    other.unfenced(places.target, ABOUT, lambda _: (Operation("CHANGE COLUMN", {}, {}), [{"metaData": action}]))


def test_a_column_that_somebody_changes_during_a_run_ends_it_as_a_start_would(places: Places, writer: DirectWriter) -> None:
    """I9: the rows of the batch were made for the table as it was."""
    log, run = Logs.of(places).target, DirectWriter(CONTRACT)
    assert run.fence(log, statement(1)) is not None
    schema = DeltaTable(places.target).schema().to_json()
    _altered(places, schemaString=schema.replace('"name":"id","type":"long"', '"name":"id","type":"string"'))
    for _ in range(2):  # a statement that is tried again finds the same
        with pytest.raises(Refused, match=r"CONTRACT_CHANGED.*the column id is string in the table, bigint in the contract"):
            run.post(log, statement(1, SEEK, Seek("")))
    _altered(places, schemaString=schema.replace('"nullable":false', '"nullable":true', 1))
    with pytest.raises(Refused, match=r"CONTRACT_CHANGED.*the column id may be null in the table"):
        DirectWriter(CONTRACT).fence(log, statement(2))


def test_a_change_between_look_and_commit_is_judged_before_the_commit(places: Places, writer: DirectWriter) -> None:
    log, run = Logs.of(places).target, DirectWriter(CONTRACT)
    assert run.fence(log, statement(1)) is not None

    def decide(_: LiveTable) -> tuple[Operation, Sequence[dict[str, Any]]]:
        DeltaTable(places.target).alter.add_columns([Field("more", PrimitiveType("string"))])
        return ADD, []

    with pytest.raises(Refused, match=r"CONTRACT_CHANGED.*more is in the table, not in the contract"):
        run.commit(log, lambda: statement(1, SEEK, Seek("")), decide)
    assert DeltaTable(places.target).transaction_version("oncelake/shop/orders") == 1 << 32


def test_a_look_back_takes_the_writers_own_look_and_reads_no_log_again(places: Places, writer: DirectWriter) -> None:
    logs, run = Logs.of(places), DirectWriter(CONTRACT)
    assert run.fence(logs.target, statement(1)) is not None and run.fence(logs.quarantine, statement(1)) is not None
    target, quarantine = (DeltaLog(None, path) for path in (places.target, places.quarantine))  # type: ignore[arg-type]
    look_back = LookBack("shop.orders", target, quarantine, NOWHERE, run.look)
    run.post(logs.target, statement(1, SEEK, Seek("")))
    seen = look_back.again()
    assert (seen.target.version, seen.quarantine.version) == (2, 1)
    assert seen.target == Snapshot(logs.target.state().id, 2, logs.target.stamp(2))  # type: ignore[union-attr]
    DeltaTable(places.target).alter.add_columns([Field("more", PrimitiveType("string"))])
    with pytest.raises(Refused, match="CONTRACT_CHANGED"):
        look_back.again()
    DeltaTable(places.quarantine).restore(0)
    with pytest.raises(IngestError, match="QUARANTINE_REWOUND"):
        LookBack("shop.orders", logs.quarantine, logs.quarantine, NOWHERE, run.look).again()


def test_a_harmless_change_of_the_table_during_a_run_goes_on(places: Places, writer: DirectWriter) -> None:
    log, run = Logs.of(places).target, DirectWriter(CONTRACT)
    assert run.fence(log, statement(1)) is not None
    DeltaTable(places.target).alter.set_table_description("orders of the shop")
    DeltaTable(places.target).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    assert run.post(log, statement(1, SEEK, Seek(""))).version == 4


def test_a_feature_that_somebody_switches_on_during_a_run_ends_it(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).quarantine
    assert writer.fence(log, statement(1)) is not None
    DeltaTable(places.quarantine).alter.set_table_properties({"delta.appendOnly": "true"})
    for _ in range(2):
        with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
            writer.post(log, statement(1, SEEK, Seek("")))


def test_a_table_is_judged_when_it_is_loaded_and_when_it_changes_and_not_at_every_look(
    places: Places, writer: DirectWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    monkeypatch.setattr(live_table, "refuse_unfit", lambda state, path: judged.append(path))
    log, run = Logs.of(places).target, DirectWriter()
    assert run.fence(log, statement(1)) is not None
    for number in (1, 2, 3):
        run.post(log, statement(1, number, Seek("")))
    assert judged == [places.target]
    DeltaTable(places.target).alter.set_table_description("orders of the shop")
    run.post(log, statement(1, 4, Seek("")))
    assert judged == [places.target] * 2


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
    own = {"_source": 0, "_partition": 0, "_kafka_timestamp": at, "_ingested_at": at, "_epoch": 1, "_batch": 2}
    rows = pa.Table.from_pylist([{"id": n, "_offset": n, **own} for n in range(3)], schema)
    file = write_file(places.target, rows, ("id",))
    writer.commit(log, lambda: statement(1, FIRST_BATCH, Batch()), lambda _: (ADD, [file.addition()]))
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
        writer.delete(log, statement(1, SEEK, RollBack()), "`offset` = 1")
    assert sorted(Path(places.quarantine).rglob("*")) == before
    assert writer.delete(log, statement(1, SEEK, RollBack()), "`offset` = 7") is None, "nothing to write again"


def test_a_table_that_needs_another_writer_is_refused_before_anything_is_written(places: Places) -> None:
    strange = CONTRACT.model_copy(update={"properties": {"delta.enableRowTracking": "true"}})
    with pytest.raises(InvalidInput, match="DIRECT_UNFIT"):
        DirectWriter().create_tables(strange, places)
    assert not Path(places.target).exists()


def lines(*batches: int) -> list[dict[str, Any]]:
    """Rows of the ledger, each about one batch."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = [statement(1, batch, Batch()) for batch in batches]
    target = Sums(5, 5 * 2**62, 2**64 - 1)
    postings = [Posting(Key(1, batch, 0, 0), "batch", OffsetRange(0, 0, 5), 5, target) for batch in batches]
    topic = TopicId("orders", "id")
    given = zip(found, postings, strict=True)
    return [Line(each, "shop", "orders", of.id, "writer 1", topic, "target", 1, "hash", at).row() for of, each in given]


def ledger_table(*batches: int) -> pa.Table:
    schema = to_arrow_schema(T.StructType(list(LEDGER_FIELDS)), timezone="UTC")
    return pa.Table.from_pylist(lines(*batches), schema)


def _renamed(table: str, uri: str, to: Path) -> None:
    """Append a file with two records, in the quarantine, whose name in the log is `uri`, and which is at `to`."""
    write_deltalake(table, pa.Table.from_pylist([_record(0), _record(1)], pa.schema(DeltaTable(table).schema())), mode="append")
    commit = Path(table) / "_delta_log" / f"{DeltaTable(table).version():020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    (Path(table) / add["path"]).rename(to)
    add["path"] = uri
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _record(offset: int, source: int = 0) -> dict[str, Any]:
    texts = {"topic": "orders", "topic_id": "id", "reason_code": "empty", "contract_hash": "h", "state": "open", "state_by": "ingest run"}
    return {
        **texts,
        "source": source,
        "partition": 0,
        "offset": offset,
        "epoch": 1,
        "batch": 2,
        "state_changed_at": datetime(2026, 1, 1, tzinfo=UTC),
    }


def test_the_log_tells_what_a_statement_was(places: Places, writer: DirectWriter) -> None:
    assert writer.fence(Logs.of(places).target, statement(1)) is not None
    newest = DeltaTable(places.target).history(1)[0]
    assert newest["operation"] == "WRITE" and "isBlindAppend" not in newest
    assert json.loads(newest["userMetadata"])["kind"] == "fence"


def test_re_read_records_enter_once_and_change_their_state(places: Places, writer: DirectWriter) -> None:
    log, at = Logs.of(places).quarantine, datetime(2026, 2, 1, tzinfo=UTC)
    rows = pa.Table.from_pylist([_record(0), _record(1)], pa.schema(DeltaTable(places.quarantine).schema()))
    writer.merge_quarantine(log, lambda: statement(1, FIRST_BATCH, Batch()), rows.slice(0, 1), reopen=False)
    positions = pa.table({"source": pa.array([0], pa.int16()), "partition": pa.array([0], pa.int32()), "offset": [0], "at": pa.array([at])})
    writer.mark_replayed(positions, places, statement(1, FIRST_BATCH, Mark()), "ingest seek")
    (found,) = DeltaTable(places.quarantine).to_pyarrow_table().to_pylist()
    assert (found["state"], found["state_changed_at"], found["state_by"]) == ("replayed", at, "ingest seek")
    commit = writer.merge_quarantine(log, lambda: statement(1, FIRST_BATCH + 1, Batch()), rows, reopen=True)
    left = DeltaTable(places.quarantine).to_pyarrow_table().sort_by("offset").to_pylist()
    assert left == rows.to_pylist() and len(commit.removed) == 1


def test_a_record_of_another_topic_at_the_same_offset_is_another_record(places: Places, writer: DirectWriter) -> None:
    """I6: one topic was recreated or joined, so its number differs; partition and offset may be the same."""
    log, at = Logs.of(places).quarantine, datetime(2026, 2, 1, tzinfo=UTC)
    rows = pa.Table.from_pylist([_record(0, source) for source in (0, 1)], pa.schema(DeltaTable(places.quarantine).schema()))
    for number in (0, 1):
        about = statement(1, FIRST_BATCH + number, Batch())
        writer.merge_quarantine(log, lambda about=about: about, rows.slice(number, 1), reopen=True)  # type: ignore[misc]
    positions = pa.table({"source": pa.array([1], pa.int16()), "partition": pa.array([0], pa.int32()), "offset": [0], "at": pa.array([at])})
    writer.mark_replayed(positions, places, statement(1, FIRST_BATCH + 1, Mark()), "ingest seek")
    left = DeltaTable(places.quarantine).to_pyarrow_table().sort_by("source").to_pylist()
    assert [(each["source"], each["state"]) for each in left] == [(0, "open"), (1, "replayed")]


def test_values_of_another_table_reach_the_rows_that_are_meant(places: Places) -> None:
    rows = pa.table({"k": ["a", "b", "c", None], "v": [1, 2, 3, 4], "nested": [[{"x": 1}], None, [], []]})
    values = pa.table({"k": ["c", "a", "z", None], "v": pa.array([None, 9, 8, 7], pa.int32())})
    found = updated(rows, np.array([True, True, True, True]), values, ("k",), ("v",))
    assert found["v"].to_pylist() == [9, 2, None, 4] and found["nested"] == rows["nested"]
    assert updated(rows, np.array([False, True, True, False]), values, ("k",), ("v",))["v"].to_pylist() == [1, 2, None, 4]


def test_statistics_of_columns_that_the_table_does_not_have_are_left_out(places: Places, writer: DirectWriter) -> None:
    """The property may name a field of a nested column; a rewrite of a file must not fail for it."""
    properties = {"delta.dataSkippingStatsColumns": "offset,headers.key,gone"}
    DeltaTable(places.quarantine).alter.set_table_properties(properties, raise_if_not_exists=False)
    log = Logs.of(places).quarantine
    rows = pa.Table.from_pylist([_record(0), _record(1)], pa.schema(DeltaTable(places.quarantine).schema()))
    writer.merge_quarantine(log, lambda: statement(1, FIRST_BATCH, Batch()), rows, reopen=False)
    assert writer.delete(log, statement(1, FIRST_BATCH + 1, RollBack()), "`offset` = 1") is not None
    (file,) = writer.table(places.quarantine).live.values()
    assert file.least == {"offset": 0} and file.rows == 1
