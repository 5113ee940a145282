"""Another engine deletes, updates and compacts during a MERGE: the MERGE is retried on the table's new version (I3).

On a local disk, commits of two processes do not exclude each other. So our driver is stopped while the other engine commits: it has read
the table and started to write its files, but it has not started its own commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import EventId
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline, ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MOVED = {"customer_id": "C-moved"}


def test_a_delete_update_or_optimize_during_a_merge_makes_the_merge_retry_on_the_new_version(pipeline: PipelineFactory) -> None:
    """The current batch contains copies of half of the rows that are deleted or updated.

    A deleted row comes back only if a copy of it is merged after the DELETE. An updated row keeps its update.
    """
    lake = pipeline(batch=1500)
    lake.produce(3200)
    deleted: list[list[EventId]] = []

    def delete(table: DeltaTable) -> None:
        deleted.extend(picked(lake, 3))
        table.delete(within([*deleted[0], *deleted[1]]))

    removal = struck(lake, 3, delete)
    found = ids(lake)
    assert found.issuperset(deleted[0]) and found.isdisjoint(deleted[1])

    lake.produce(2400, poison=40, seed=2)
    updated: list[list[EventId]] = []

    def update(table: DeltaTable) -> None:
        updated.extend(picked(lake, 3))
        table.update({name: f"'{value}'" for name, value in MOVED.items()}, predicate=within([*updated[0], *updated[1]]))

    change = struck(lake, 3, update)
    lake.produce(1200, poison=40, seed=3)
    struck(lake, 2, lambda table: table.optimize.compact())

    (verified,) = lake.verified()
    assert verified["target"]["removed"] == len(deleted[0]) + len(deleted[1])
    lake.judge(
        own_versions=frozenset({removal, change}),
        excused_ids=frozenset(deleted[1]),
        updated=dict.fromkeys([*updated[0], *updated[1]], MOVED),
    ).assert_clean()


def test_files_that_a_vacuum_deletes_during_a_write_cause_an_error_and_the_batch_is_repeated(pipeline: PipelineFactory) -> None:
    """Another engine runs VACUUM on all files with no retention: Delta's own safeguard of seven days is switched off."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    driver = lake.start(fault="during_target:hang@3")
    driver.stopped()
    table = DeltaTable(str(lake.delta()))
    deleted_files = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert any(name.endswith(".parquet") for name in deleted_files), deleted_files
    driver.proceed()
    driver.ended(0)
    assert "A new epoch is opened" in driver.said and "Traceback" not in driver.said
    assert (1, 2) in lake.written() and (1, 3) not in lake.written(), "no version names a deleted file"
    lake.judge().assert_clean()
    lake.verified()


def struck(lake: Pipeline, batch: int, commit_beside: Callable[[DeltaTable], object]) -> int:
    """Run, and let another engine commit during this batch's MERGE; return the version of that commit."""
    driver = lake.start(fault=f"during_target:hang@{batch}")
    driver.stopped()
    before, files = lake.commits()[-1].version, lake.orphans()
    number = (lake.epoch(), batch)
    assert number not in lake.written() and files, "the MERGE has written files and has not committed"
    assert not list((lake.delta() / "_delta_log").glob(".*.tmp")), (
        "the driver is committing: a concurrent commit could be lost on a local disk"
    )
    commit_beside(DeltaTable(str(lake.delta())))
    assert [commit.version for commit in lake.commits()][-2:] == [before, before + 1]
    driver.proceed()
    driver.ended(0)
    assert [each.version for each in lake.batches() if each.number == number] == [before + 2]
    assert read_version(lake, before + 2) == before + 1, "the MERGE was retried on the other engine's version"
    assert lake.orphans() >= files, "the files of the first attempt are in no version"
    return before + 1


def picked(lake: Pipeline, batch: int) -> tuple[list[EventId], list[EventId]]:
    """Ids of rows in partition 0 from the batch before: five with copies in this batch, and five without any later copy."""
    done = ranges(lake.batches()[-1])
    planned = lake.planned(batch)
    shown = lake.shown().records.items()
    later = {record.event_id for (partition, offset), record in shown if offset >= done[partition][1]}
    copied = {record.event_id for (partition, offset), record in shown if done[partition][1] <= offset < planned[partition]}
    rows = select(lake.delta(), ["_partition", "_offset", "order_id"])
    there: list[EventId] = [(order_id,) for partition, offset, order_id in rows if partition == 0 and done[0][0] <= offset < done[0][1]]
    found = [each for each in there if each in copied][:5], [each for each in there if each not in later][:5]
    assert [len(each) for each in found] == [5, 5]
    return found


def ids(lake: Pipeline) -> set[EventId]:
    return {(order_id,) for (order_id,) in select(lake.delta(), ["order_id"])}


def within(chosen: Sequence[EventId]) -> str:
    listed = ", ".join(f"'{order_id}'" for (order_id,) in chosen)
    return f"order_id IN ({listed})"


def read_version(lake: Pipeline, version: int) -> int:
    """The version that a commit says it read."""
    lines = (lake.delta() / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8").splitlines()
    return int(next(info["readVersion"] for line in lines if (info := json.loads(line).get("commitInfo"))))
