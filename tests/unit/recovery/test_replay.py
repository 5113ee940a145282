"""`pending`: whether a row that the target's newest batch inserted is still open in the quarantine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.delta.batch_commit import BatchCommit, BatchId
from ingest.delta.delta_sql import DataFusion
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.recovery.replay import pending
from tests.unit.recovery.engine_scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Offsets 8 and 9 were quarantined. A seek has re-read both: 8 became a row, 9 is still poison."""
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(8), (8, 9))
    scene.seek(5)
    scene.batch(5, 10, (8,))
    return scene


def newest(scene: Scene) -> BatchCommit:
    batch_commit = scene.log().commit(scene.snapshots().version).batch_commit
    assert batch_commit is not None and batch_commit.kind == "batch"
    return batch_commit


def reading(batch_commit: BatchCommit, *ranges: OffsetRange) -> BatchCommit:
    """As if it had read these offsets."""
    return replace(batch_commit, postings=tuple(Posting(Key(2, 2, *each.of), "batch", each) for each in ranges))


def is_pending(scene: Scene, batch_commit: BatchCommit) -> bool:
    return pending(DataFusion(), scene.places, batch_commit)


def test_a_quarantined_record_that_became_a_row_is_pending_until_it_is_replayed(scene: Scene) -> None:
    assert is_pending(scene, newest(scene))
    scene.quarantine.update(new_values={"state": "discarded"}, predicate='"offset" = 8')
    assert is_pending(scene, newest(scene)), "only the state `replayed` counts, even if a user discarded the record"
    scene.quarantine.update(new_values={"state": "replayed"}, predicate='"offset" = 8')
    assert not is_pending(scene, newest(scene))
    scene.records([8], partition=1)
    assert not is_pending(scene, reading(newest(scene), OffsetRange(0, 5, 10), OffsetRange(1, 5, 10)))


def test_only_rows_of_the_same_batch_topic_and_range_count(scene: Scene) -> None:
    batch_commit = newest(scene)
    others = [replace(batch_commit, id=BatchId(1, 2)), reading(batch_commit, OffsetRange(0, 5, 10, source=1))]
    others += [reading(batch_commit, *ranges) for ranges in ((OffsetRange(0, 5, 8), OffsetRange(1, 8, 9)), (OffsetRange(0, 8, 8),), ())]
    for other in others:
        assert not is_pending(scene, other), other
    assert is_pending(scene, reading(batch_commit, OffsetRange(1, 0, 3), OffsetRange(0, 8, 9)))


def test_a_row_of_another_topic_at_the_same_offset_is_another_record(scene: Scene) -> None:
    """I6: topic 1 has joined, and its record at offset 8 is a row. The quarantined one at offset 8 is of topic 0."""
    scene.topic = TopicId("returns", "another")
    scene.batch(0, 10, range(10))
    both = (OffsetRange(0, 0, 10), OffsetRange(0, 0, 10, source=1))
    assert not is_pending(scene, reading(newest(scene), *both))
    scene.records([8])
    assert is_pending(scene, reading(newest(scene), *both))
