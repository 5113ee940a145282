"""Another engine deletes, updates and compacts in the middle of a MERGE: the conflict is decided on the table as it is by then (I3).

On a local disk commits of two processes do not exclude each other. So ours stands still while the other one commits: it has read the
table and begun to write its files, and its own commit is not under way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from deltalake import DeltaTable

from ingest.lab.oracle.oracle_tables import select
from ingest.lab.oracle.sources import EventId
from tests.faults.conftest import PipelineFactory
from tests.faults.pipeline import Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MOVED = {"customer_id": "C-moved"}


def test_a_delete_an_update_and_an_optimize_in_the_middle_of_a_merge_are_met_by_merging_anew(pipeline: PipelineFactory) -> None:
    """Of half the rows that are deleted or updated the batch at hand has copies.

    What was deleted comes back with a copy that is merged behind the DELETE, and only then; what was updated stays so.
    """
    lake = pipeline(batch=1500)
    lake.produce(3200)
    deleted: list[list[EventId]] = []

    def delete(table: DeltaTable) -> None:
        deleted.extend(picked(lake, 3))
        table.delete(within([*deleted[0], *deleted[1]]))

    removal = struck(lake, 3, delete)
    held = ids(lake)
    assert held.issuperset(deleted[0]) and held.isdisjoint(deleted[1])

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


def test_files_that_a_vacuum_takes_from_under_a_writer_are_missed_aloud_and_the_batch_is_done_again(pipeline: PipelineFactory) -> None:
    """Another engine, told to keep nothing and to look at all files: Delta's own safeguard of seven days is switched off."""
    lake = pipeline(batch=1500)
    lake.produce(3200, poison=40)
    driver = lake.start(fault="during_target:hang@3")
    driver.stopped()
    table = DeltaTable(str(lake.delta()))
    taken = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert any(name.endswith(".parquet") for name in taken), taken
    driver.proceed()
    driver.ended(0)
    assert "A new epoch is opened" in driver.said and "Traceback" not in driver.said
    assert (1, 2) in lake.written() and (1, 3) not in lake.written(), "no version names a file that is gone"
    lake.judge().assert_clean()
    lake.verified()


def struck(lake: Pipeline, batch: int, strike: Callable[[DeltaTable], object]) -> int:
    """Read on, and let another engine commit in the middle of this batch's MERGE; the version of that commit."""
    driver = lake.start(fault=f"during_target:hang@{batch}")
    driver.stopped()
    before, files = lake.commits()[-1].version, lake.orphans()
    number = (lake.epoch(), batch)
    assert number not in lake.written() and files, "it has begun to write, and has not committed"
    assert not list((lake.delta() / "_delta_log").glob(".*.tmp")), "its commit is under way: another one now could be lost on a local disk"
    strike(DeltaTable(str(lake.delta())))
    assert [commit.version for commit in lake.commits()][-2:] == [before, before + 1]
    driver.proceed()
    driver.ended(0)
    assert [each.version for each in lake.batches() if each.number == number] == [before + 2]
    assert read_version(lake, before + 2) == before + 1, "merged anew, on the table as the other engine has left it"
    assert lake.orphans() >= files, "what it had written before is in no version"
    return before + 1


def picked(lake: Pipeline, batch: int) -> tuple[list[EventId], list[EventId]]:
    """Ids of rows in partition 0 by the batch before: five of which this one has copies, and five of which no copy follows."""
    done = lake.batches()[-1].ranges
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
    """The version that a commit says it has read."""
    lines = (lake.delta() / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8").splitlines()
    return int(next(info["readVersion"] for line in lines if (info := json.loads(line).get("commitInfo"))))
