"""Preflight (I6) where the checkpoint was lost, changed or is held: every refusal provoked for real, and what mends it."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from ingest.errors import Refused
from ingest.stream import lock, lock_file
from tests.integration.lane import Lane, order, two_batches
from tests.integration.refusal import MakeLane, balanced, refused

pytestmark = pytest.mark.integration


def test_a_lost_checkpoint_is_refused_and_rebased_to_the_tables_end(lane: MakeLane) -> None:
    one = two_batches(lane)
    one.lose_checkpoint()
    error = refused(one, "CHECKPOINT_LOST")
    assert f"ingest rebase {one.places.name} --to table" in error.remedy
    done = one.rebase()
    assert done.aside is None and done.binding.epoch == 1
    one.send(order("c"), order("a"))
    (report,) = one.run()
    assert (report.number, report.inserted, report.duplicate, report.replayed) == (1, 1, 1, 0)
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


@pytest.mark.slow
def test_an_older_checkpoint_is_refused_and_rebased_to_the_tables_end(lane: MakeLane) -> None:
    one = two_batches(lane)
    kept = one.folder / "kept"
    shutil.copytree(one.places.checkpoint, kept)
    one.send(order("c"))
    one.run()
    shutil.rmtree(one.places.checkpoint)
    shutil.copytree(kept, one.places.checkpoint)
    one.send(order("d"))
    error = refused(one, "CHECKPOINT_OLD")
    assert "batch 1" in error.found and "batch 2" in error.found
    done = one.rebase()
    assert done.aside is not None and Path(done.aside, "metadata").exists()
    one.run()
    assert one.ids() == ["a", "b", "c", "d"]
    balanced(one)


@pytest.mark.slow
def test_a_checkpoint_without_a_batch_goes_on_with_the_table_that_was_made_anew(lane: MakeLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bound to a table that was deleted before anything was in it: the next start but one must not take the new one for another's."""
    one = lane()
    one.send(order("a"))
    one.arm(monkeypatch, "after_offset_log:raise@0")
    one.stopped()
    monkeypatch.delenv("INGEST_FAULT")
    shutil.rmtree(one.places.root)
    one.run()
    one.send(order("b"))
    one.run()
    assert one.ids() == ["a", "b"]
    balanced(one)


@pytest.mark.slow
def test_two_checkpoints_on_one_table_are_refused_even_with_the_lock_bypassed(lane: MakeLane) -> None:
    """I8"""
    one = two_batches(lane)
    two = Lane(one.session, one.contract, one.bootstrap_servers, one.folder)
    two.places = type(one.places)(one.places.lake, str(one.folder / "others"), one.places.pipeline, one.places.table)
    refused(two, "CHECKPOINT_LOST")
    two.rebase()  # its user insists
    two.send(order("c"))
    two.run()
    refused(one, "TABLE_OWNED")
    assert two.ids() == ["a", "b", "c"]
    balanced(two)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("metadata", None, id="no metadata"),
        pytest.param("metadata", "", id="empty metadata"),
        pytest.param("offsets/1", "", id="empty offsets"),
        pytest.param("offsets/1", None, id="no offsets"),
        pytest.param("commits/0", None, id="no commit of before"),
        pytest.param("commits/1", "", id="empty commit"),
    ],
)
def test_a_torn_checkpoint_is_refused_or_replayed_and_rebased(lane: MakeLane, file: str, text: str | None) -> None:
    one = two_batches(lane)
    if file == "commits/0":
        one.forget_commit(1)  # batch 1 is unfinished, and the one before seems so too
    path = one.checkpoint(file)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink() if text is None else path.write_text(text)
    if (file, text) == ("offsets/1", None):
        refused(one, "CHECKPOINT_OLD")  # without it, this is a checkpoint of before batch 1
    else:
        assert file in refused(one, "CHECKPOINT_TORN").found
    one.rebase()
    one.send(order("c"))
    one.run()
    assert one.ids() == ["a", "b", "c"]
    balanced(one)


def test_a_table_that_another_writer_holds_is_locked_and_its_holder_is_named(lane: MakeLane) -> None:
    """I8: the lock beside the tables, not the checkpoint's: another checkpoint may not write them meanwhile either."""
    one = two_batches(lane)
    held = lock.hold(one.session, Path(one.places.root))
    error = refused(one, "LOCKED")
    assert socket.gethostname() in error.found and str(os.getpid()) in error.found
    with pytest.raises(Refused, match="LOCKED"):
        one.rebase()
    assert lock_file.holder(one.places.root) is not None, "a refusal in this JVM has dropped the kernel's lock"
    held.release()
    one.send(order("c"))
    one.run()
    assert one.ids() == ["a", "b", "c"]
