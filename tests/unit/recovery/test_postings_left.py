"""What Spark's writer could not post with its batch: a run posts it when it ends, and once (I4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.delta.batch_commit import State
from ingest.delta.delta_log import Logs
from ingest.delta.our_commits import newest_first
from ingest.delta.posting import Key, Posting, Sums
from tests.unit.batch.batch_model import Event, Shape, record
from tests.unit.batch.local_desk import LocalDesk

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("later_batches", "posted"), [(0, 1), (1, 0)])
def test_a_run_that_ends_posts_only_what_no_later_batch_has_posted(tmp_path: Path, later_batches: int, posted: int) -> None:
    """A batch that fails after its commit leaves what it has posted of its predecessor."""
    shape = Shape()
    desk = LocalDesk(shape.contract(), tmp_path)
    for number in range(1 + later_batches):
        desk.process([[record(shape, (0, number), Event(number, "a", 0))]])
    epoch = desk.table.epoch
    epoch.unposted.append(Posting(Key(epoch.writer.epoch, 2, 0, 0), "batch", target=Sums(1, 0, 5), present=0))
    epoch.finish()
    assert len([*newest_first(Logs.of(desk.places).target, desk.places.name, State)]) == posted and not epoch.unposted
