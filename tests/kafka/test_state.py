"""Keyed state: changes by a failed record or an aborted transaction are undone."""

from __future__ import annotations

import pytest

from ingest.delivery.kafka import Outgoing, State

pytestmark = pytest.mark.unit


def test_a_change_is_visible_at_once_and_kept_with_the_commit() -> None:
    kept = {b"a": b"1"}
    state = State(kept)
    state[b"a"], state[b"b"] = b"2", b"1"
    assert (state[b"a"], b"b" in state, kept) == (b"2", True, {b"a": b"1"})
    state.take()
    assert list(state.changes("log", 3)) == [Outgoing("log", b"2", b"a", partition=3), Outgoing("log", b"1", b"b", partition=3)]
    state.keep()
    assert kept == {b"a": b"2", b"b": b"1"} and list(state.changes("log", 3)) == []


def test_only_the_changes_of_a_failed_record_are_undone() -> None:
    state = State({})
    state[b"a"] = b"1"
    state.take()
    state[b"a"] = b"2"
    state.undo()
    assert state[b"a"] == b"1"


def test_a_deleted_key_is_gone_and_becomes_a_tombstone() -> None:
    kept = {b"a": b"1"}
    state = State(kept)
    del state[b"a"]
    assert state.get(b"a") is None and b"a" not in state
    with pytest.raises(KeyError):
        del state[b"a"]
    state.take()
    assert list(state.changes("log", 0)) == [Outgoing("log", None, b"a", partition=0)]
    state.keep()
    assert kept == {}
