"""The store of event ids: it is persistent and bounded, and it shares a transaction with the caller's writes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ingest.delivery.kafka import SeenIds, StoreFailed
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit


def test_an_id_is_new_only_once_even_after_a_restart(tmp_path: Path) -> None:
    with SeenIds(tmp_path / "seen") as seen:
        with seen.once("a") as first:
            assert first
        with seen.once("a") as again:
            assert not again
    with SeenIds(tmp_path / "seen") as seen, seen.once("a") as after_restart:
        assert not after_restart


def test_the_oldest_ids_are_removed_when_there_are_too_many(tmp_path: Path) -> None:
    with SeenIds(tmp_path / "seen", keep=100) as seen:
        for number in range(500):
            with seen.once(str(number)):
                pass
        assert 100 <= len(seen) <= 105
        assert "499" in seen and "400" in seen and "390" not in seen


def test_the_ids_are_for_their_owner_alone(tmp_path: Path) -> None:
    with SeenIds(tmp_path / "seen") as seen, seen.once("ada@example.org"):
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_failed_work_leaves_its_id_new_and_rolls_back_its_other_writes(tmp_path: Path) -> None:
    with SeenIds(tmp_path / "seen") as seen:
        seen.connection.execute("CREATE TABLE account (cents INTEGER)")
        with pytest.raises(ZeroDivisionError), seen.once("a"):
            seen.connection.execute("INSERT INTO account VALUES (5)")
            raise ZeroDivisionError
        assert "a" not in seen
        for _ in range(3):
            with seen.once("a") as fresh:
                if fresh:
                    seen.connection.execute("INSERT INTO account VALUES (5)")
        assert seen.connection.execute("SELECT sum(cents) FROM account").fetchone() == (5,)


def test_a_store_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="SEEN_KEEP"):
        SeenIds(tmp_path / "seen", keep=0)


@pytest.mark.parametrize("damaged", [True, False])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, damaged: bool) -> None:
    path = tmp_path / "seen" if damaged else tmp_path / "no-such-folder" / "seen"
    if damaged:
        path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreFailed, match=rf"SEEN_STORE.*{path}"):
        SeenIds(path)
