"""`ingest rebase`: to anywhere, cut off at any point, and what it does not mend."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from ingest.errors import Refused
from tests.integration.lane import order, two_batches
from tests.integration.records import contract
from tests.integration.refusal import MakeLane, balanced, cut_off, forget_tables, refused

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_rebase_to_earliest_and_to_offsets_adds_nothing_twice(lane: MakeLane) -> None:
    """I3: whatever is read again, an id that is there is not added; the ledger keeps both epochs and balances."""
    one = two_batches(lane)
    one.rebase("earliest")
    one.send(order("c"))
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.replayed) == (4, 1, 3)
    one.rebase("offsets", {0: 1})
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"] and one.quarantine().count() == 1
    assert one.verified().epochs == 3
    balanced(one)


@pytest.mark.slow
def test_a_rebase_that_was_cut_off_is_finished_by_the_next(lane: MakeLane) -> None:
    """Between moving the old checkpoint aside and renaming the new one there is none: a start refuses, the next rebase finishes."""
    one = two_batches(lane)
    cut_off(one, "rebase_aside")
    refused(one, "CHECKPOINT_LOST")
    done = one.rebase("earliest")
    assert done.plan is None, "the prepared one was put in place"
    one.send(order("c"))
    (report,) = one.run()
    assert report.records_read == 1
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_a_rebase_that_was_cut_off_is_not_finished_on_another_table(lane: MakeLane) -> None:
    """A table made again may stand at the same version: what was prepared tells of the one before."""
    one = two_batches(lane)
    cut_off(one, "rebase_aside")
    state = one.log().state()
    assert state is not None
    another = str(uuid.uuid4())
    for path in Path(one.places.target, "_delta_log").glob("*.json"):  # no more than its id differs
        path.write_text(path.read_text().replace(state.id, another))
    for path in Path(one.places.target, "_delta_log").glob("*.crc"):
        path.unlink()
    done = one.rebase("earliest")
    assert done.plan is not None, "planned anew"


@pytest.mark.slow
def test_a_checkpoint_put_back_after_a_rebase_was_cut_off_goes_on_and_its_batches_count(lane: MakeLane) -> None:
    """The ledger has the rows of that rebase already; they ended nothing."""
    one = two_batches(lane)
    cut_off(one, "rebase_ledger", "earliest")
    (aside,) = Path(one.places.checkpoint).parent.glob("*.aside-*")
    shutil.rmtree(one.places.checkpoint, ignore_errors=True)
    aside.rename(one.places.checkpoint)
    one.send(order("c"), "[")
    (report,) = one.run()
    assert (report.number, report.inserted, report.quarantined) == (2, 1, 1)
    verified = one.verified()
    assert verified.findings == () and (verified.total.batches, verified.target_rows) == (3, 3)
    one.rebase()
    one.send(order("d"))
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)


@pytest.mark.slow
def test_a_damaged_contract_beside_the_checkpoint_is_left_behind_by_a_rebase(lane: MakeLane) -> None:
    """And what it would have told of the event id the table's own property tells."""
    one = lane({"n": "STRING!"})
    one.send(order("a", n="1"))
    one.run()
    one.checkpoint("oncelake/contract.json").write_text("{")
    assert one.stopped().code == "CONTRACT_DAMAGED"
    one.rebase()
    before = one.contract
    one.contract = contract({"id": "STRING!", "n": "STRING!"}, topic=before.source.topic, event_id=("id", "n"))
    assert "the event id is" in refused(one, "CONTRACT_CHANGED").found
    one.contract = before
    one.send(order("c", n="1"))
    one.run()
    assert one.ids() == ["a", "c"]


@pytest.mark.slow
def test_a_rebase_says_first_what_it_does_not_mend(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 7 days')")
    one.sql("RESTORE TABLE {} TO VERSION AS OF 0", "quarantine")
    refused(one, "QUARANTINE_REWOUND")
    with pytest.raises(Refused, match="TXN_RETENTION"):
        one.rebase()


@pytest.mark.slow
def test_a_rebase_cut_off_where_table_and_ledger_were_gone_is_no_first_start(lane: MakeLane) -> None:
    """Between its two renames nothing else tells that there was anything."""
    one = two_batches(lane)
    shutil.rmtree(one.places.root)
    forget_tables(one)
    refused(one, "TABLE_REWOUND")
    cut_off(one, "rebase_aside")
    assert ".rebase-prepared" in refused(one, "CHECKPOINT_LOST").found
    assert one.rebase().plan is None, "the prepared one was put in place"
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)
