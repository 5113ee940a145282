"""A torn checkpoint and a lost one, with real processes: refused, nothing written, rebased, and then complete.

Each kind of torn file is provoked in tests/integration/test_preflight.py. Here two tables read one topic in one driver. Two starts end by
an exception after the target's commit, of batch 0 and of batch 1: then a batch is unfinished, and a skip is possible in both.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults.conftest import PipelineFactory
from tests.faults.driver import batch_lines
from tests.faults.pipeline import Pipeline

# Seven starts of a JVM; make test provokes the same inside one (tests/integration/test_preflight.py).
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

TORN, LOST = "orders_torn", "orders_lost"


@dataclass(frozen=True)
class Story:
    pipeline: Pipeline
    raised: str
    refused: dict[str, dict[str, Any]]
    written_when_refused: dict[str, list[int]]
    rebased: dict[str, str]
    verified: str


@pytest.fixture(scope="module")
def story(shared_pipeline: PipelineFactory) -> Story:
    pipeline = shared_pipeline(tables=(TORN, LOST), batch=1500)
    pipeline.produce(3000, poison=40)
    pipeline.start("--once", fault="after_target:raise@0").ended(5)
    raised = pipeline.start("--once", fault="after_target:raise@1").ended(5)
    metadata = pipeline.checkpoint(TORN) / "metadata"
    metadata.write_bytes(b"")
    (metadata.parent / ".metadata.crc").unlink(missing_ok=True)
    shutil.rmtree(pipeline.checkpoint(LOST))
    refused = {row["table"].removeprefix("shop."): row for row in json.loads(pipeline.start("--once", "--json").ended(3))["tables"]}
    written = {table: pipeline.written("target", table) for table in (TORN, LOST)}
    aims = {TORN: "table", LOST: "earliest"}
    rebased = {table: pipeline.command("rebase", table, "--to", aim).ended(0) for table, aim in aims.items()}
    pipeline.complete()
    return Story(pipeline, raised, refused, written, rebased, pipeline.command("verify").ended(0))


def test_an_exception_in_a_batch_is_one_readable_error_for_each_table(story: Story) -> None:
    for table in (TORN, LOST):
        assert f"ingest: QUERY_FAILED: shop.{table}: InjectedFault: after_target@1" in story.raised
    for word in ("Traceback", "StackOverflow", "\tat ", "py4j"):
        assert word not in story.raised


@pytest.mark.parametrize("table", [TORN, LOST])
def test_an_exception_after_the_commit_leads_to_no_second_commit(story: Story, table: str) -> None:
    """I1, I2: the next start of the same checkpoint takes batch 0 for what it is, written, and goes on."""
    assert batch_lines(story.raised, f"shop.{table}")[0].startswith("was written before, skipped")
    assert story.written_when_refused[table] == [0, 1]


@pytest.mark.parametrize(("table", "code"), [(TORN, "CHECKPOINT_TORN"), (LOST, "CHECKPOINT_LOST")])
def test_the_start_is_refused_and_writes_nothing(story: Story, table: str, code: str) -> None:
    """I6"""
    error = story.refused[table]["error"]
    assert error["code"] == code and f"ingest rebase shop.{table} --to table" in error["remedy"]
    assert story.written_when_refused[table] == [0, 1]


@pytest.mark.parametrize("table", [TORN, LOST])
def test_after_a_rebase_a_new_epoch_goes_on_and_the_oracle_finds_nothing_lost_or_doubled(story: Story, table: str) -> None:
    ids = {app_id.split("/")[3] for commit in story.pipeline.commits("target", table) for app_id, _ in commit.txns}
    assert len(ids) == 2, "two checkpoints have written"
    assert f"shop.{table}: done" in story.rebased[table]
    aside = list(story.pipeline.checkpoints.glob(f"shop/{table}.aside-*/offsets/1"))
    assert len(aside) == (1 if table == TORN else 0), "the old checkpoint is kept, as far as there was one"
    story.pipeline.judge(table).assert_clean()


def test_the_epochs_balance(story: Story) -> None:
    for table in (TORN, LOST):
        assert f"shop.{table}: BALANCED" in story.verified
    assert story.verified.count("of 2 checkpoints") == 2
