"""Runs on a table with random event ids: the index beside the checkpoints answers, also for files that Delta in Spark wrote (I3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from delta.tables import DeltaTable

from ingest.delta.id_segment import opened
from tests.integration.lane import Lane, order

pytestmark = pytest.mark.integration


def test_random_ids_are_found_in_the_index_after_spark_has_rearranged_and_deleted_rows(lane: Callable[..., Lane]) -> None:
    one, random = lane({"n": "INT"}), Random(1)
    one.direct = True
    ids = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(40)]
    for at in range(0, 40, 10):
        one.send(*(order(id, n=1) for id in ids[: at + 10]))
        assert sum(report.inserted for report in one.run()) == 10
    DeltaTable.forPath(one.session, one.places.target).optimize().executeCompaction()
    one.send(*(order(id, n=2) for id in ids))
    assert sum(report.inserted for report in one.run()) == 0
    (segment,) = [opened(path) for path in (Path(one.places.checkpoint) / "ids").glob("*.ids")]
    assert segment.rows == 40, "of Spark's file alone: those of the files before are gone"
    DeltaTable.forPath(one.session, one.places.target).delete(f"id = '{ids[7]}'")
    one.send(*(order(id, n=3) for id in ids))
    assert sum(report.inserted for report in one.run()) == 1
    assert sorted(one.ids()) == sorted(ids)
