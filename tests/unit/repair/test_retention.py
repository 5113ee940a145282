"""Which records leave the quarantine, and that each statement which removes some posts them, in the same commit (I4)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.contract.definition import Contract
from ingest.delta.batch_commit import Upkeep
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import DataFusion
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.posting import NOTHING, Posting
from ingest.delta.stored_rows import QUARANTINE, TARGET
from ingest.ledger.projection import complete
from ingest.repair import retention
from ingest.repair.retention import POSITIONS, remove, retirable
from ingest.verify.verdict import verify
from tests.unit.batch.local_desk import PLACES, LocalDesk, Record
from tests.unit.repair.test_maintenance import DOCUMENT, batch

pytestmark = pytest.mark.unit

LATER = datetime(2200, 1, 1, tzinfo=UTC)


@pytest.fixture
def desk(tmp_path: Path) -> LocalDesk:
    """Three batches of one row (offsets 0, 2, 4) and one record for the quarantine (1, 3, 5) each, in tables and ledger."""
    one = LocalDesk(Contract.model_validate(DOCUMENT), tmp_path)
    for offset in (0, 2, 4):
        batch(one, offset)
    complete(DirectWriter(), one.places)
    return one


def due(desk: LocalDesk, before: datetime = LATER, *, open_too: bool = False) -> list[int]:
    found: list[int] = retirable(DataFusion(), desk.places, before, open_too=open_too)["o"].to_pylist()
    return sorted(found)


def state(desk: LocalDesk, offset: int, to: str) -> None:
    DirectWriter().set_state(desk.places, f"`offset` = {offset}", to, "ada")


def postings(desk: LocalDesk, table: str) -> list[list[Posting]]:
    """The postings of each of our upkeep commits on a table, oldest first."""
    log: DeltaLog = getattr(Logs.of(desk.places), table)
    found = [each.batch_commit for each in log.newest_first() if each.batch_commit is not None]
    return [list(each.postings) for each in reversed(found) if isinstance(each.case, Upkeep)]


def test_only_settled_records_of_their_time_leave(desk: LocalDesk) -> None:
    assert due(desk) == []
    state(desk, 1, "dropped")
    state(desk, 5, "replayed")
    assert (due(desk), due(desk, open_too=True)) == ([1, 5], [1, 3, 5])
    assert due(desk, datetime(2020, 1, 1, tzinfo=UTC), open_too=True) == []


def test_records_of_a_batch_that_the_ledger_lacks_stay(desk: LocalDesk) -> None:
    """It may be in progress, or cut off: then the next start rolls it back."""
    batch(desk, 6)
    state(desk, 7, "dropped")
    assert 7 not in due(desk, open_too=True)
    complete(DirectWriter(), desk.places)
    assert due(desk) == [7]


def test_without_a_batch_nothing_leaves(tmp_path: Path) -> None:
    desk = LocalDesk(Contract.model_validate(DOCUMENT), tmp_path)
    assert due(desk, open_too=True) == []


def test_removed_records_are_posted_by_their_batch_in_the_same_commit(desk: LocalDesk) -> None:
    for offset in (1, 5):
        state(desk, offset, "dropped")
    found = retirable(DataFusion(), desk.places, LATER)
    log = Logs.of(desk.places).quarantine
    before = log.newest()
    assert remove(DirectWriter(), desk.places, found, desk.places.quarantine, QUARANTINE, "retention", "a law") == 2
    assert Logs.of(desk.places).quarantine.newest() == before + 1
    ((first, second),) = postings(desk, "quarantine")
    for posting, number, offset in ((first, 2, 1), (second, 4, 5)):
        assert (posting.why, posting.key.batch, posting.target, posting.range) == ("retention", number, NOTHING, None)
        assert (posting.quarantine.rows, posting.quarantine.offsets) == (-1, -offset)
    assert verified(desk) == ()
    again = remove(DirectWriter(), desk.places, found, desk.places.quarantine, QUARANTINE, "retention")
    assert again == 0 and len(postings(desk, "quarantine")) == 1, "somebody else has removed them"


def test_a_record_that_was_opened_again_since_the_look_stays(desk: LocalDesk) -> None:
    """A maintenance works beside a run, which may read the record again after a seek, and refuse it now."""
    for offset in (1, 5):
        state(desk, offset, "replayed")
    found = retirable(DataFusion(), desk.places, LATER)
    state(desk, 1, "open")
    assert remove(DirectWriter(), desk.places, found, desk.places.quarantine, QUARANTINE, "retention") == 1
    assert sorted(row["offset"] for row in desk.quarantine()) == [1, 3] and verified(desk) == ()


def verified(desk: LocalDesk) -> tuple[object, ...]:
    complete(DirectWriter(), desk.places)
    return verify(DataFusion(), desk.contract, desk.places).findings


@pytest.mark.parametrize("keys_max", [1, 2, 3, 100])
def test_rows_of_many_batches_leave_in_several_statements_that_each_post_their_own(
    desk: LocalDesk, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A posting takes a hundred bytes of its commit. A batch is never cut in two."""
    desk.process([[Record(p, at, b'{"id": "%d-%d", "n": 1}' % (p, at)) for p, at in ((1, 0), (1, 1), (2, 0))]])
    monkeypatch.setattr(retention, "KEYS_MAX", keys_max)
    rows = [
        dict(zip("ebspo", (row["_epoch"], row["_batch"], *PLACES[row["_partition"]], row["_offset"]), strict=True)) for row in desk.rows()
    ]
    found = pa.Table.from_pylist(rows[::-1], POSITIONS)
    keys = {tuple(row[name] for name in "ebsp") for row in rows}
    assert remove(DirectWriter(), desk.places, found, desk.places.target, TARGET, "erasure") == len(rows) == 6
    statements = postings(desk, "target")
    assert len(keys) == 5 and len(statements) == -(-5 // keys_max)
    assert sorted(len(each) for each in statements)[-1] == min(keys_max, 5)
    posted = [posting for each in statements for posting in each]
    assert len({posting.key for posting in posted}) == len(posted) == 5 and sum(each.inserted for each in posted) == -6
    assert verified(desk) == () and desk.rows() == []


def test_nothing_to_remove_is_no_commit(desk: LocalDesk) -> None:
    assert remove(DirectWriter(), desk.places, POSITIONS.empty_table(), desk.places.target, TARGET, "erasure") == 0
    assert postings(desk, "target") == []
