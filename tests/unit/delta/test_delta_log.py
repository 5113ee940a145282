"""Reading a Delta log: which commits are ours, the files that they added, and the table's state (I1)."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.delta.batch_commit import Batch, BatchCommit, BatchId, Snapshot, Snapshots, app_id
from ingest.delta.commit import AddedFile
from ingest.delta.delta_log import DeltaLog
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.runtime.errors import Refused
from ingest.runtime.files import LocalFiles

Put = Callable[..., None]


class Counted(LocalFiles):
    """The local disk, with a count of folder listings."""

    listings = 0

    def names(self, folder: str) -> list[str]:
        self.listings += 1
        return super().names(folder)


SNAPSHOT = Snapshot("T", 1, "t1")
BATCH = BatchCommit(
    *(Batch(), "shop", "orders", BatchId(2, 7), "w", Snapshots(SNAPSHOT, SNAPSHOT), "hash", (TopicId("orders", "id"),)),
    (Posting(Key(2, 7, 0, 0), "batch", OffsetRange(0, 5, 9)),),
)
TXN = BATCH.id.txn_version


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog(LocalFiles(), str(tmp_path))


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(
        version: int, *, batch_commit: BatchCommit | None = None, txn: tuple[str, int] | None = None, actions: tuple[Any, ...] = ()
    ) -> None:
        info = {"timestamp": 1_735_787_100_123, "operation": "MERGE", "userMetadata": batch_commit and batch_commit.to_json()}
        lines: list[Any] = [{"commitInfo": info}, *actions]
        if txn:
            lines.append({"txn": {"appId": txn[0], "version": txn[1], "lastUpdated": 1}})
        folder = tmp_path / "_delta_log"
        folder.mkdir(exist_ok=True)
        (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")

    return write


def test_a_commit_is_ours_only_with_both_metadata_and_transaction_id(log: DeltaLog, put: Put) -> None:
    """I1: an auto-compaction's OPTIMIZE has the session's metadata, and another statement of ours has the app id."""
    put(0, batch_commit=BATCH, txn=(BATCH.app_id, TXN))
    put(1, batch_commit=BATCH)
    put(2, txn=(BATCH.app_id, TXN))
    put(3, batch_commit=BATCH, txn=(BATCH.app_id, TXN + 1))
    put(4, batch_commit=BATCH, txn=(app_id("shop", "payments"), TXN))
    put(5)
    assert [commit.batch_commit for commit in log.since(-1)] == [BATCH, None, None, None, None, None]


def test_added_files_are_read_with_their_rows_and_partition(log: DeltaLog, put: Put) -> None:
    """I4: row counts come from numRecords, and are None if the writer stored none."""
    stats = json.dumps({"numRecords": 3})
    put(
        0,
        actions=(
            {"add": {"path": "day=2024-05-01/part%20a.parquet", "stats": stats, "partitionValues": {"day": "2024-05-01"}}},
            {"add": {"path": "b.parquet", "stats": None, "partitionValues": {}}},
            {"add": {"path": "c.parquet"}},
            {"remove": {"path": "d.parquet", "stats": stats}},
        ),
    )
    commit = log.commit(0)
    assert commit.added == (
        AddedFile("day=2024-05-01/part a.parquet", 3, {"day": "2024-05-01"}),
        AddedFile("b.parquet", None, {}),
        AddedFile("c.parquet", None, {}),
    )
    assert commit.committed_at == datetime(2025, 1, 2, 3, 5, 0, 123000, UTC)


def test_only_commit_files_count_as_versions(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    assert not log.exists()
    for version in (3, 20, 100):
        put(version)
    for name in (
        f"{20:020}.checkpoint.parquet",
        f"{20:020}.crc",
        "_last_checkpoint",
        f".{21:020}.json.tmp",
        "21.json",
        f"{1:020}.{3:020}.compacted.json",
    ):
        (tmp_path / "_delta_log" / name).write_text("")
    assert log.exists()
    assert log.versions() == [3, 20, 100]
    assert [c.version for c in log.newest_first()] == [100, 20, 3]
    assert [c.version for c in log.since(20)] == [100]
    with pytest.raises(FileNotFoundError):
        log.commit(21)


@pytest.mark.parametrize("there", [(0, 1, 3), (1, 2), (0, 3, 4)])
def test_a_log_with_a_hole_is_refused_with_the_version_that_is_missing(log: DeltaLog, put: Put, there: tuple[int, ...]) -> None:
    """Delta cannot open such a table, but reports it only when a batch runs."""
    for version in there:
        put(version)
    lacking = min(set(range(max(there))) - {*there})
    with pytest.raises(Refused, match=rf"LOG_TORN.*lacks the commit of version {lacking}, but continues to version {max(there)}"):
        log.state()


@pytest.mark.parametrize("data", [b'{"commitInfo": {"timest', b"\xff\xfe{}", b"\0" * 64, b"3\n", b"null"])
def test_a_commit_file_that_is_cut_off_or_not_json_is_refused_by_name(log: DeltaLog, put: Put, tmp_path: Path, data: bytes) -> None:
    put(0)
    put(1)
    file = tmp_path / "_delta_log" / f"{1:020}.json"
    file.write_bytes(data)
    for asked in (log.state, lambda: log.since(0), lambda: log.commit(1)):
        with pytest.raises(Refused, match=rf"LOG_TORN: {file} is not in the format"):
            asked()


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"])
def test_an_empty_log_checkpoint_is_ignored_and_a_damaged_one_is_refused_by_name(
    log: DeltaLog, put: Put, tmp_path: Path, name: str
) -> None:
    """A full disk leaves an empty checkpoint, which Delta ignores. A damaged one once made a start fail like a bug of ours."""
    put(0, actions=({"metaData": {"id": "t"}},))
    put(1)
    file = tmp_path / "_delta_log" / f"{1:020}.{name}"
    file.write_bytes(b"")
    state = log.state()
    assert state is not None and (state.version, state.id) == (1, "t")
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(Refused, match=rf"LOG_TORN: {file} is not in the format"):
        DeltaLog(LocalFiles(), log.table).state()


def test_commits_that_a_log_checkpoint_covers_may_be_missing(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    for version in (2, 5, 6):
        put(version)
    write_checkpoint(tmp_path, 5, {"metaData": {"id": "t"}})
    state = log.state()
    assert state is not None and (state.version, state.id) == (6, "t")
    put(8)
    with pytest.raises(Refused, match=r"LOG_TORN.*lacks the commit of version 7"):
        DeltaLog(LocalFiles(), str(tmp_path)).state()


def test_a_json_checkpoint_of_policy_v2_replaces_the_commits_before_it(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    """After Delta has cleaned up the log before it, no commit is missing and the transaction ids are known (I2)."""
    put(5, txn=("replaced by the checkpoint", 3))
    put(6, txn=("of another", 4))
    actions: list[Any] = [{"checkpointMetadata": {"version": 5}}, {"metaData": {"id": "t", "configuration": {"a": "b"}}}]
    actions += [{"txn": {"appId": "of before", "version": 2}}, {"sidecar": {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    name = f"{5:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (tmp_path / "_delta_log" / name).write_text("\n".join(map(json.dumps, actions)))
    state = log.state()
    assert state is not None and (state.version, state.id, state.properties) == (6, "t", {"a": "b"})
    assert state.transactions == {"of before": 2, "of another": 4} and log.versions() == [5, 6]


def test_a_commit_written_while_the_folder_is_listed_is_not_a_hole(put: Put, tmp_path: Path) -> None:
    for version in (0, 1, 2):
        put(version)

    class Late(LocalFiles):
        def names(self, folder: str) -> list[str]:
            return [name for name in super().names(folder) if name != f"{1:020}.json"]

    state = DeltaLog(Late(), str(tmp_path)).state()
    assert state is not None and state.version == 2


@pytest.fixture
def files() -> Counted:
    return Counted()


@pytest.fixture
def followed(files: Counted, tmp_path: Path, put: Put) -> DeltaLog:
    """A log of four commits that was read once."""
    for version in range(4):
        put(version)
    log = DeltaLog(files, str(tmp_path))
    assert log.newest() == 3
    assert files.listings == 1
    return log


def test_new_commits_are_found_by_name_without_a_listing(followed: DeltaLog, files: Counted, put: Put) -> None:
    """A log of 20,000 commits takes 0.1 s to list, so no batch may list it again."""
    assert followed.since(3) == []
    put(4)
    put(5)
    assert followed.newest() == 5
    assert [c.version for c in followed.since(3)] == [4, 5]
    assert [c.version for c in followed.newest_first()] == [5, 4, 3, 2, 1, 0]
    assert files.listings == 1


def test_a_recreated_table_is_noticed_whatever_its_version(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "_delta_log")
    assert followed.newest() == -1
    assert followed.since(3) == []
    put(0)
    assert followed.newest() == 0
    assert [c.version for c in followed.newest_first()] == [0]
    for version in range(1, 7):
        put(version)
    shutil.rmtree(tmp_path / "_delta_log")
    put(0, batch_commit=BATCH, txn=(BATCH.app_id, TXN))
    put(6)  # another file with the name of the newest commit that was read
    put(9)
    assert followed.newest() == 9
    assert [c.version for c in followed.newest_first()] == [9, 6, 0]


def test_commits_that_were_cleaned_up_hide_no_later_ones(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    """Delta removes commits that a checkpoint covers. Here it removes all that were read, and more, between two reads."""
    for version in range(4, 12):
        put(version)
    for version in range(9):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert followed.newest() == 11
    assert [c.version for c in followed.since(3)] == [9, 10, 11]
    assert [c.version for c in followed.newest_first()] == [11, 10, 9]


def test_a_checkpoint_newer_than_the_newest_known_commit_causes_a_listing(followed: DeltaLog, put: Put, tmp_path: Path) -> None:
    """A clean-up failed to remove exactly the commit that was read last."""
    put(9)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 8, "size": 3}')
    assert followed.newest() == 9
    assert [c.version for c in followed.since(3)] == [9]


def test_a_stamp_is_the_commits_txn_id_or_else_the_hash_of_its_file(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    """I1: it distinguishes a commit from one of the same version in a copy with later writes. delta-rs writes no txnId."""
    put(0)
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    assert log.stamp(0) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert log.stamp(1) == ""
    file.write_text('{"add":{"path":"x"}}\n{"commitInfo":{"txnId":"a"}}\n')
    assert log.stamp(0) == "a"
    state = log.state()
    assert state is not None and (state.snapshot.version, state.snapshot.stamp) == (0, "a")


def test_a_missing_table_has_no_state_and_a_missing_newest_commit_has_no_stamp(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    assert log.state() is None
    put(0)
    write_checkpoint(tmp_path, 3, {"metaData": {"id": "t"}})
    state = log.state()
    assert state is not None and state.snapshot == Snapshot("t", 3, "")


def write_checkpoint(table: Path, version: int, *actions: dict[str, Any], part: str = "") -> None:
    columns = {name: [action.get(name) for action in actions] for action in actions for name in action}
    pq.write_table(pa.table(columns), table / "_delta_log" / f"{version:020}.checkpoint{part}.parquet")


def test_transaction_ids_come_from_the_checkpoint_and_later_commits_even_if_lower(log: DeltaLog, put: Put, tmp_path: Path) -> None:
    """I8: delta-rs accepts a lower transaction id, and Delta then uses it."""
    txn = [{"txn": {"appId": app, "version": version}} for app, version in (("a", 9), ("b", 5), ("c", 1))]
    write = [{"add": {"path": str(n)}} for n in range(50)]
    for version in range(7):
        put(version, txn=("a", version))
    write_checkpoint(tmp_path, 4, *write, *txn, {"metaData": {"id": "t"}})
    state = log.state()
    assert state is not None and (state.transactions, state.version, state.id) == ({"a": 6, "b": 5, "c": 1}, 6, "t")


def test_a_checkpoint_with_missing_parts_is_ignored_in_favor_of_the_one_before_it(put: Put, tmp_path: Path) -> None:
    for version in range(8):
        put(version, actions=({"metaData": {"id": f"of {version}"}},))
    for version, part in ((2, ""), (4, f".{1:010}.{2:010}"), (4, f".{2:010}.{2:010}"), (6, f".{1:010}.{2:010}")):
        write_checkpoint(tmp_path, version, {"txn": {"appId": f"{version}{part[10:11]}", "version": 1}}, part=part)
    (tmp_path / "_delta_log" / f"{6:020}.checkpoint.crc").touch()
    state = DeltaLog(LocalFiles(), str(tmp_path)).state()
    assert state is not None and (sorted(state.transactions), state.id) == (["41", "42"], "of 7")


def test_clustering_comes_from_the_newest_statement(log: DeltaLog, put: Put) -> None:
    def clustering(*columns: list[str], removed: bool = False) -> dict[str, Any]:
        configuration = json.dumps({"clusteringColumns": columns, "domainName": "delta.clustering"})
        return {"domainMetadata": {"domain": "delta.clustering", "configuration": configuration, "removed": removed}}

    then = [(clustering(["id"], ["a", "b"]), ("id", "a.b")), ({}, ("id", "a.b")), (clustering(removed=True), ()), (clustering(), ())]
    for version, (action, expected) in enumerate(then):
        put(version, actions=(action,))
        state = log.state()
        assert state is not None and state.cluster_by == expected


def test_after_the_first_read_the_folder_is_not_listed_again(files: Counted, put: Put, tmp_path: Path) -> None:
    """Listing and sorting half a million names takes a second."""
    for version in range(3):
        put(version)
    log = DeltaLog(files, str(tmp_path))
    assert log.state() is not None and [c.version for c in log.newest_first()] == [2, 1, 0]
    assert log.exists() and log.whole()
    put(3, actions=({"metaData": {"id": "t"}},), txn=("a", 7))
    put(4)
    state = log.state()
    assert state is not None and (state.version, state.id, state.transactions, state.stamp) == (4, "t", {"a": 7}, log.stamp(4))
    assert files.listings == 1


def test_a_recreated_table_has_a_state_of_its_own(files: Counted, put: Put, tmp_path: Path) -> None:
    put(0, actions=({"metaData": {"id": "t"}},), txn=("a", 7))
    log = DeltaLog(files, str(tmp_path))
    assert log.state() is not None
    shutil.rmtree(tmp_path / "_delta_log")
    for version in range(3):
        put(version, actions=({"metaData": {"id": "other"}},))
    assert log.newest() == 2
    state = log.state()
    assert state is not None and (state.version, state.id, state.transactions) == (2, "other", {})


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_whose_commits_a_catalog_decides_is_refused_with_the_features_name(log: DeltaLog, put: Put, feature: str) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    put(0, actions=({"protocol": protocol},))
    state = log.state()
    assert state is not None and state.features == {"deletionVectors"}, "another feature is no reason to refuse"
    put(1, actions=({"protocol": {**protocol, "writerFeatures": ["deletionVectors", feature]}},))
    for _ in range(2):  # also from the cached state
        with pytest.raises(Refused, match=feature) as refused:
            log.state()
    assert refused.value.code == "CATALOG_MANAGED"


def test_the_features_of_a_table_are_read_from_a_checkpoint_too(tmp_path: Path, log: DeltaLog) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    features = ["catalogManaged"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    pq.write_table(pa.Table.from_pylist([{"protocol": protocol}]), folder / f"{4:020}.checkpoint.parquet")
    with pytest.raises(Refused, match="catalogManaged"):
        log.state()
