"""What a validation run covers is decided from versions and marks alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingest.cli.check import print_checked
from ingest.quality.check import Checked
from ingest.quality.scope import Last, Scope, Slice, decide, joined
from ingest.stream.delta_log import AddedFile, Commit
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange

pytestmark = pytest.mark.unit

LAST = Last(3, "table", "suite")


def commit(
    version: int, operation: str = "MERGE", start: int = 0, end: int = 10, rows: int = 1, *, ours: bool = True, table: str = "events"
) -> Commit:
    mark = Mark("t", table, BatchId("query", version), 0, "hash", "topic", "id", (OffsetRange(0, start, end),), ())
    pairs = {mark.app_id("target"): version} if ours else {}
    added = (AddedFile(f"{version}.parquet", rows),) if rows else ()
    return Commit(version, datetime.now(UTC), operation, pairs, mark.to_json() if ours else None, added)


def scope(*commits: Commit, version: int | None = None, **more: bool) -> tuple[str, tuple[Slice, ...], str]:
    newest = version if version is not None else (commits[-1].version if commits else 3)
    found = decide(LAST, newest, "table", "suite", commits, "t.events", **more)
    return found.name, found.slices, found.why


def test_only_what_batches_added_since_is_new() -> None:
    found = scope(commit(4, start=0, end=10), commit(5, start=10, end=25), commit(6, start=25, end=30, rows=0))
    assert found == ("new", (Slice("id", 0, 0, 25),), "")


def test_nothing_since_is_nothing_new() -> None:
    assert scope() == ("new", (), "")


@pytest.mark.parametrize("operation", ["OPTIMIZE", "DELETE", "VACUUM END", "SET TBLPROPERTIES"])
def test_what_adds_no_row_is_no_reason_to_look_again(operation: str) -> None:
    rows = 1 if operation in ("OPTIMIZE", "DELETE") else 0
    assert scope(commit(4), commit(5, operation, rows=rows, ours=False))[0] == "new"


@pytest.mark.parametrize("operation", ["UPDATE", "WRITE", "MERGE", "RESTORE", "STREAMING UPDATE"])
def test_a_change_that_is_no_batch_makes_it_the_whole_table(operation: str) -> None:
    name, _, why = scope(commit(4), commit(5, operation, ours=False))
    assert name == "whole"
    assert "version 5" in why


def test_a_restore_that_only_takes_rows_away_makes_it_the_whole_table() -> None:
    """What the batches since then have added may be gone, and what they replaced be back."""
    assert scope(commit(4), commit(5, "RESTORE", rows=0, ours=False))[0] == "whole"


def test_a_batch_of_another_table_makes_it_the_whole_table() -> None:
    assert scope(commit(4, table="others"))[0] == "whole"


def test_a_log_with_a_hole_makes_it_the_whole_table() -> None:
    assert "no longer reaches" in scope(commit(5))[2]
    assert "no longer reaches" in scope(commit(4), version=5)[2]


def test_another_table_another_suite_an_older_version_or_no_run_make_it_the_whole_table() -> None:
    assert decide(LAST, 3, "other", "suite", (), "t.events").name == "whole"
    assert decide(LAST, 3, "table", "other", (), "t.events").name == "whole"
    assert decide(LAST, 2, "table", "suite", (), "t.events").name == "whole"
    assert decide(None, 3, "table", "suite", (), "t.events").name == "whole"
    assert scope(everything=True)[0] == "whole"


def test_slices_join_within_a_partition_and_topic() -> None:
    parts = [
        Slice("b", 0, 0, 5),
        Slice("a", 1, 5, 9),
        Slice("a", 1, 0, 5),
        Slice("a", 1, 3, 4),
        Slice("a", 2, 9, 12),
        Slice("a", 1, 20, 21),
    ]
    assert joined(parts) == (Slice("a", 1, 0, 9), Slice("a", 1, 20, 21), Slice("a", 2, 9, 12), Slice("b", 0, 0, 5))


@pytest.mark.parametrize(("after", "said"), [(None, False), (3, True), (2, True)], ids=["whole", "nothing new", "new"])
def test_a_verdict_on_what_is_new_says_that_rows_before_were_not_looked_at(
    after: int | None, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty bad rows of before are still there when the next run says passed."""
    slices = (Slice("id", 0, 4, 9),) if after == 2 else ()
    print_checked(Checked("shop.orders", Scope(3, after, slices, "asked for"), (), None, None, 0.1))
    assert ("ingest check --all" in capsys.readouterr().out) is said
