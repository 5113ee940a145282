"""Checkpoints with torn, empty or missing files, and without any file (FAULTS rows 5 and 6): a clear stop or a replay, never a skip.

Five tables read one topic in one driver, so that one start serves all. The first start ends by an exception after the target's
commit of batch 1: then a batch is unfinished in each checkpoint, and a skip is possible in each.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline
from tests.oracle import Verdict

pytestmark = pytest.mark.timeout(900)

DAMAGED = ("offsets_empty", "commits_empty", "metadata_empty", "metadata_missing")
TABLES = (*DAMAGED, "checkpoint_lost")


@dataclass(frozen=True)
class Story:
    pipeline: Pipeline
    raised: str
    damaged: dict[str, dict[str, Any]]
    rows_after_damage: dict[str, list[int]]
    mended: dict[str, dict[str, Any]]
    verdicts: dict[str, Verdict]


@pytest.fixture(scope="module")
def story(shared_pipeline: PipelineFactory) -> Story:
    pipeline = shared_pipeline(tables=TABLES, batch=1500)
    pipeline.produce(3000, poison=40)
    raised = pipeline.start("--once", fault="after_target:raise@1").ended(5)
    kept = pipeline.folder / "kept"
    shutil.copytree(pipeline.checkpoints, kept)
    tear(pipeline.checkpoint("offsets_empty") / "offsets" / "1")
    tear(pipeline.checkpoint("commits_empty") / "commits" / "0")
    tear(pipeline.checkpoint("metadata_empty") / "metadata")
    (pipeline.checkpoint("metadata_missing") / "metadata").unlink()
    (pipeline.checkpoint("metadata_missing") / ".metadata.crc").unlink(missing_ok=True)
    shutil.rmtree(pipeline.checkpoint("checkpoint_lost"))
    damaged = results(pipeline, 5)
    rows = {table: pipeline.written("target", table) for table in TABLES}
    for table in DAMAGED:
        shutil.rmtree(pipeline.checkpoint(table))
        shutil.copytree(kept / "shop" / table, pipeline.checkpoint(table))
    mended = results(pipeline, 0, *DAMAGED)
    return Story(pipeline, raised, damaged, rows, mended, {table: pipeline.judge(table) for table in TABLES})


def tear(file: Path) -> None:
    """What a power cut leaves of a file whose name was on the disk and whose bytes were not."""
    file.write_bytes(b"")
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def results(pipeline: Pipeline, code: int, *tables: str) -> dict[str, dict[str, Any]]:
    """Run once over these tables or all; what it reports of each."""
    said = pipeline.start("--once", "--json", *tables).ended(code)
    return {row["table"].removeprefix("shop."): row for row in json.loads(said)["tables"]}


def test_an_exception_in_a_batch_is_one_readable_error_for_each_table(story: Story) -> None:
    for table in TABLES:
        assert f"ingest: QUERY_FAILED: shop.{table}: InjectedFault: after_target@1" in story.raised
    for word in ("Traceback", "StackOverflow", "\tat ", "py4j"):
        assert word not in story.raised


@pytest.mark.parametrize(("table", "file"), [("metadata_empty", "metadata"), ("offsets_empty", "offsets/1")])
def test_an_empty_file_is_a_clear_stop(story: Story, table: str, file: str) -> None:
    """By our own error or, where Spark reads the file first, by Spark's; both name the file."""
    error = story.damaged[table]["error"]
    assert error is not None and error["code"] in ("CHECKPOINT_TORN", "QUERY_FAILED") and file in error["found"], error


@pytest.mark.parametrize("table", DAMAGED)
def test_a_damaged_checkpoint_never_leads_to_a_skip_of_what_is_not_there(story: Story, table: str) -> None:
    """Either the table stopped and holds what it held, or it went on and holds every batch once."""
    written = story.rows_after_damage[table]
    if story.damaged[table]["error"] is not None:
        assert written == [0, 1]
    else:
        assert written == list(range(len(written))) and len(written) > 2


def test_with_the_checkpoint_lost_the_replay_from_earliest_adds_no_row_and_counts_each_as_replayed(story: Story) -> None:
    row = story.damaged["checkpoint_lost"]
    assert row["error"] is None
    assert row["replayed"] > 2000, "two batches were read before"
    ids = {app_id.split("/")[3] for commit in story.pipeline.commits("target", "checkpoint_lost") for app_id, _ in commit.txns}
    assert len(ids) == 2, "two checkpoints have written"


@pytest.mark.parametrize("table", DAMAGED)
def test_with_the_file_restored_it_goes_on_where_it_was(story: Story, table: str) -> None:
    """After the exception, too: where batch 1 was still unfinished it is skipped, for the target holds it."""
    assert story.mended[table]["error"] is None
    assert story.damaged[table]["error"] is None or story.mended[table]["skipped"] == 1
    written = story.pipeline.written("target", table)
    assert written == list(range(len(written))) and len(written) > 2


@pytest.mark.parametrize("table", TABLES)
def test_whatever_was_damaged_the_oracle_finds_nothing_lost_or_doubled(story: Story, table: str) -> None:
    story.verdicts[table].assert_clean()
