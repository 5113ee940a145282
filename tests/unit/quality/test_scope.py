"""The scope of a validation run is decided from table versions and batch commits alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingest.cli.check import print_checked
from ingest.delta.batch_commit import FIRST_BATCH, Batch, BatchCommit, BatchId, Fence, Seek, Snapshot, Snapshots
from ingest.delta.commit import AddedFile, Commit
from ingest.quality.scope import Last, Scope, Slice, decide, joined
from ingest.quality.validation import Checked

pytestmark = pytest.mark.unit

LAST = Last(3, "table", "suite", "duckdb")


SNAPSHOT = Snapshot("table", 3, "stamp")


def commit(
    version: int, operation: str = "MERGE", id: tuple[int, int] = (1, FIRST_BATCH), rows: int = 1, *, ours: bool = True, **other: str
) -> Commit:
    case = Seek("") if id[1] == 1 else Fence() if id[1] == 0 else Batch()
    batch_commit = BatchCommit(case, "t", other.get("table", "events"), BatchId(*id), "writer", Snapshots(SNAPSHOT, SNAPSHOT))
    transactions = {batch_commit.app_id: batch_commit.id.txn_version} if ours else {}
    added = (AddedFile(f"{version}.parquet", rows),) if rows else ()
    return Commit(version, datetime.now(UTC), operation, transactions, batch_commit.to_json() if ours else None, added)


def scope(*commits: Commit, version: int | None = None, **more: bool) -> tuple[str, tuple[Slice, ...], str]:
    newest = version if version is not None else (commits[-1].version if commits else 3)
    found = decide(LAST, newest, "table", "suite", commits, "t.events", "duckdb", **more)
    return found.name, found.slices, found.why


def test_only_rows_that_batches_added_since_the_last_run_are_new() -> None:
    """Batch 4 added nothing. A new epoch starts with a fence and, after a seek, with its start offsets."""
    found = scope(commit(4, id=(1, 2)), commit(5, id=(1, 3)), commit(6, id=(1, 4), rows=0), commit(7, id=(1, 5)))
    assert found == ("new", (Slice(1, 2, 3), Slice(1, 5, 5)), "")
    found = scope(commit(4, "WRITE", id=(2, 0), rows=0), commit(5, "WRITE", id=(2, 1), rows=0), commit(6, id=(2, 2)))
    assert found == ("new", (Slice(2, 2, 2),), "")


def test_without_commits_since_the_last_run_nothing_is_new() -> None:
    assert scope() == ("new", (), "")


@pytest.mark.parametrize("operation", ["OPTIMIZE", "DELETE", "VACUUM END", "SET TBLPROPERTIES"])
def test_a_commit_that_adds_no_new_rows_does_not_widen_the_scope(operation: str) -> None:
    rows = 1 if operation in ("OPTIMIZE", "DELETE") else 0
    assert scope(commit(4), commit(5, operation, rows=rows, ours=False))[0] == "new"


@pytest.mark.parametrize("operation", ["UPDATE", "WRITE", "MERGE", "RESTORE", "STREAMING UPDATE"])
def test_a_change_other_than_a_batch_widens_the_scope_to_the_whole_table(operation: str) -> None:
    name, _, why = scope(commit(4), commit(5, operation, ours=False))
    assert name == "whole"
    assert "version 5" in why


def test_a_restore_that_only_removes_rows_widens_the_scope_to_the_whole_table() -> None:
    """Rows that batches added since then may be gone, and rows that they replaced may be back."""
    assert scope(commit(4), commit(5, "RESTORE", rows=0, ours=False))[0] == "whole"


def test_a_batch_of_another_table_widens_the_scope_to_the_whole_table() -> None:
    assert scope(commit(4, table="others"))[0] == "whole"


def test_a_gap_in_the_log_widens_the_scope_to_the_whole_table() -> None:
    assert "no longer reaches" in scope(commit(5))[2]
    assert "no longer reaches" in scope(commit(4), version=5)[2]


def test_another_table_or_suite_an_older_version_or_no_last_run_covers_the_whole_table() -> None:
    assert decide(LAST, 3, "other", "suite", (), "t.events", "duckdb").name == "whole"
    assert decide(LAST, 3, "table", "other", (), "t.events", "duckdb").name == "whole"
    assert decide(LAST, 2, "table", "suite", (), "t.events", "duckdb").name == "whole"
    assert decide(None, 3, "table", "suite", (), "t.events", "duckdb").name == "whole"
    assert decide(LAST, 3, "table", "suite", (), "t.events", "spark").why == "the last one was done by duckdb, this one by spark"
    assert scope(everything=True)[0] == "whole"
    assert scope(unrecorded=True)[0] == "whole"


def test_adjacent_slices_are_joined_within_an_epoch() -> None:
    parts = [Slice(2, 2, 4), Slice(1, 5, 9), Slice(1, 2, 4), Slice(1, 3, 3), Slice(1, 11, 12), Slice(3, 5, 6)]
    assert joined(parts) == (Slice(1, 2, 9), Slice(1, 11, 12), Slice(2, 2, 4), Slice(3, 5, 6))


@pytest.mark.parametrize(("after", "noted"), [(None, False), (3, True), (2, True)], ids=["whole", "nothing new", "new"])
def test_a_verdict_on_new_rows_says_that_earlier_rows_were_not_checked(
    after: int | None, noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad rows from before are still in the table when the next run passes."""
    slices = (Slice(1, 4, 9),) if after == 2 else ()
    print_checked(Checked("shop.orders", Scope(3, after, slices, "asked for"), (), None, None, 0.1))
    assert ("ingest check --all" in capsys.readouterr().out) is noted
