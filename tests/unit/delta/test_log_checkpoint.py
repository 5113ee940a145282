"""Checkpoints behind the direct writer's own commits: readers use them, no commit is removed, and a failure stops nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.delta import log_checkpoint
from ingest.delta.batch_commit import BatchCommit, Seek, Upkeep
from ingest.delta.delta_log import Logs
from ingest.delta.direct_writer import NOTHING, DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.log_checkpoint import AGAIN_AFTER, BEHIND_AT_END, BEHIND_MAX
from ingest.delta.put import put
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.unit.delta.test_direct_writer import lines, statement
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit
ABOUT = BatchCommit(Upkeep(), "shop", "orders")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")


@pytest.fixture
def writer(places: Places) -> DirectWriter:
    """A writer with the tables of the contract, whose target has a file."""
    found = DirectWriter()
    found.create_tables(CONTRACT, places)
    stats = '{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":9007199254740993},"nullCount":{"id":0}}'
    add = {"path": "a%20b.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True, "stats": stats}
    put(LocalFiles(), found.table(places.target), ABOUT, NOTHING, [{"add": add}])
    return found


def commits(writer: DirectWriter, places: Places, number: int) -> None:
    """So many statements of one epoch on the target."""
    log = Logs.of(places).target
    first = writer.table(places.target).version + 1
    for at in range(first, first + number):
        writer.post(log, statement(1, at, Seek("")))


def checkpoints(table: str) -> list[int]:
    """The versions that have a checkpoint."""
    return sorted(int(path.name[:20]) for path in (Path(table) / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_hundred_commits_leave_a_checkpoint_and_all_commits(places: Places, writer: DirectWriter) -> None:
    commits(writer, places, 120)
    assert checkpoints(places.target) == [BEHIND_MAX - 1]
    assert len(list((Path(places.target) / "_delta_log").glob("*.json"))) == 122
    commits(writer, places, BEHIND_MAX)
    assert checkpoints(places.target) == [BEHIND_MAX - 1, 2 * BEHIND_MAX - 1]


def test_a_checkpoint_removes_no_commit_whatever_the_tables_retention_says(places: Places, writer: DirectWriter) -> None:
    """deltalake cleans a log up behind its own commits; a half one cost a table its protocol."""
    short = {"delta.logRetentionDuration": "interval 0 seconds", "delta.enableExpiredLogCleanup": "true"}
    DeltaTable(places.target).alter.set_table_properties(short)
    commits(writer, places, 120)
    assert checkpoints(places.target) and len(list((Path(places.target) / "_delta_log").glob("*.json"))) == 123


def test_a_table_whose_log_before_the_checkpoint_was_removed_loads_as_it_was(places: Places, writer: DirectWriter) -> None:
    """Names, bounds, transaction ids, protocol and metadata: Delta in Spark cleans a log up as soon as a checkpoint allows it."""
    commits(writer, places, 120)
    before = writer.table(places.target)
    (at,) = checkpoints(places.target)
    for path in (Path(places.target) / "_delta_log").glob("*.json"):
        if int(path.name[:20]) < at:
            path.unlink()
    after = DirectWriter().table(places.target)
    assert after.state == before.state and after.live == before.live and DeltaTable(places.target).version() == before.version
    writer.post(Logs.of(places).target, statement(1, 200, Seek("")))
    assert after.look()[-1].batch_commit is not None


def test_quarantine_and_ledger_get_checkpoints_too(places: Places, writer: DirectWriter) -> None:
    log = Logs.of(places).quarantine
    for number in range(1, BEHIND_MAX + 1):
        writer.post(log, statement(1, number, Seek("")))
        writer.append_ledger(places, ABOUT, lines(number))
    assert checkpoints(places.quarantine) == checkpoints(places.ledger) == [BEHIND_MAX - 1]
    assert DeltaTable(places.ledger).to_pyarrow_table().num_rows == BEHIND_MAX


class PanicException(BaseException):
    """As a panic of Rust arrives in Python."""


@pytest.mark.parametrize("failure", [OSError("no space"), PanicException()])
def test_a_checkpoint_that_fails_stops_no_statement_and_is_tried_again_later(
    failure: BaseException, places: Places, writer: DirectWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fail(_: str, version: int) -> None:
        tried.append(version)
        raise failure

    with monkeypatch.context() as broken:
        broken.setattr(log_checkpoint, "write_checkpoint", fail)
        commits(writer, places, BEHIND_MAX + 5)
        assert tried == [BEHIND_MAX - 1] and writer.table(places.target).version == BEHIND_MAX + 6
        writer.finish()
    commits(writer, places, AGAIN_AFTER)
    assert checkpoints(places.target) == [BEHIND_MAX - 1 + AGAIN_AFTER]


def test_a_signal_during_a_checkpoint_is_not_passed_over(places: Places, writer: DirectWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_checkpoint, "write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commits(writer, places, BEHIND_MAX)


def test_a_checkpoint_of_another_process_counts(places: Places, writer: DirectWriter) -> None:
    commits(writer, places, 60)
    DeltaTable(places.target).create_checkpoint()
    commits(writer, places, 60)
    assert checkpoints(places.target) == [61]
    commits(writer, places, 60)
    assert checkpoints(places.target) == [61, 161]


def test_the_end_of_a_run_leaves_less_than_ten_commits_behind_a_checkpoint(places: Places, writer: DirectWriter) -> None:
    commits(writer, places, BEHIND_AT_END - 3)
    writer.finish()
    assert checkpoints(places.target) == []
    commits(writer, places, 3)
    writer.finish()
    writer.finish()
    assert checkpoints(places.target) == [BEHIND_AT_END + 1] and checkpoints(places.ledger) == []
    hint = json.loads((Path(places.target) / "_delta_log" / "_last_checkpoint").read_text())
    assert hint["version"] == BEHIND_AT_END + 1


def test_a_table_whose_protocol_asks_for_another_form_of_checkpoint_gets_none(places: Places, writer: DirectWriter) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    table = LiveTable(LocalFiles(), places.target)
    table.load()
    put(LocalFiles(), table, ABOUT, NOTHING, [{"protocol": protocol}])
    commits(writer, places, BEHIND_MAX + 5)
    writer.finish()
    assert checkpoints(places.target) == []
