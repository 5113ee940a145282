"""Lakes that `ingest verify` is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.stream.binding import Binding, FormerEpoch, Rebase
from ingest.stream.ledger_row import project_rebase
from ingest.stream.mark import Mark
from ingest.stream.offsets import BatchId, OffsetRange
from tests.unit.proof_lake import AT, FIRST, SECOND, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The first checkpoint reads ten offsets; a rebase to the earliest reads them again, and ten more, in one batch."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(3, 10), range(3))
    rebase = Rebase((FormerEpoch("q1", 0, 0, "orders", "id", ((0, 10),)),), ((0, 0),), (), 1)
    one.ledger += project_rebase(Binding("orders", "id", "", 1, ("q1",), rebase), "q2", one.places, "hash", AT, {})
    one.batch(SECOND, 1, 0, 20, range(14, 20), range(10, 14))
    return one


@pytest.fixture
def behind(tmp_path: Path) -> Lake:
    """A batch is cut off after its quarantine, and its checkpoint never comes back: a new one finds the records standing there."""
    one = Lake(tmp_path)
    one.records(range(3), Mark("shop", "orders", FIRST, 0, "hash", "orders", "id", (OffsetRange(0, 0, 10),), ()))
    one.batch(BatchId("q3", 0), 0, 0, 10, range(5, 10), (3, 4))
    return one


@pytest.fixture
def read_once(tmp_path: Path) -> Lake:
    """One checkpoint, one batch of ten rows."""
    one = Lake(tmp_path)
    one.batch(FIRST, 0, 0, 10, range(10), ())
    return one
