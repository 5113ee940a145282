"""Event ids: time-ordered when minted, reproducible and unambiguous when derived."""

from __future__ import annotations

import threading
import unicodedata
import uuid
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import event_id

PART = st.one_of(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(), st.binary())


@pytest.fixture(autouse=True, scope="module")
def process_memory_restored() -> Iterator[None]:
    """These tests mint ids of the far future; no later test shall go on from there."""
    last = event_id._last
    yield
    event_id._last = last


def test_a_minted_id_is_a_uuid_of_version_7_that_carries_its_time() -> None:
    made = uuid.UUID(event_id.mint(1_700_000_000_123, Random(1)))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_700_000_000_123


def test_a_minted_id_with_a_seed_is_the_same_each_time() -> None:
    assert event_id.mint(5, Random(7)) == event_id.mint(5, Random(7))


@given(st.lists(st.integers(0, 2**48 - 2), min_size=2, max_size=50))
def test_ids_rise_strictly_whatever_the_clock_does(clock: list[int]) -> None:
    minted = [event_id.mint(ms) for ms in clock]
    assert minted == sorted(set(minted))


def test_ids_rise_on_when_a_millisecond_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_id, "_last", (1000, 2**74 - 1))
    made = uuid.UUID(event_id.mint(1000))
    assert made.int >> 80 == 1001


def test_threads_never_mint_one_id_twice() -> None:
    minted: list[str] = []

    def work() -> None:
        minted.extend([event_id.mint() for _ in range(2000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(minted)) == 8000


@pytest.mark.parametrize("ms", [-1, 2**48])
def test_a_time_beyond_48_bits_is_refused(ms: int) -> None:
    with pytest.raises(ValueError, match="now_ms"):
        event_id.mint(ms)


@given(st.lists(PART, min_size=1, max_size=4))
def test_the_same_keys_derive_the_same_id(parts: list[str | int | bytes]) -> None:
    made = uuid.UUID(event_id.derive(*parts))
    assert made == uuid.UUID(event_id.derive(*parts))
    assert (made.version, made.variant) == (5, uuid.RFC_4122)


@given(st.lists(PART, min_size=1, max_size=4), st.lists(PART, min_size=1, max_size=4))
def test_different_keys_derive_different_ids(a: list[str | int | bytes], b: list[str | int | bytes]) -> None:
    same = [(type(x), x) for x in a] == [(type(x), x) for x in b]
    assert (event_id.derive(*a) == event_id.derive(*b)) == same


def test_a_derived_id_never_changes_between_releases() -> None:
    assert event_id.derive("shop", 42, b"\x00") == "1f84643e-cb75-5f2a-b7b9-22c49f537a8a"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("a", "bc"), ("ab", "c")),
        (("a", ""), ("a",)),
        (("a",), ("A",)),
        (("a",), ("a ",)),
        ((unicodedata.normalize("NFC", "é"),), (unicodedata.normalize("NFD", "é"),)),
        (("1",), (1,)),
        (("1",), (b"1",)),
        (("1:s1",), ("1", "s1")),
    ],
)
def test_keys_that_look_alike_derive_different_ids(a: tuple[str | int | bytes, ...], b: tuple[str | int | bytes, ...]) -> None:
    assert event_id.derive(*a) != event_id.derive(*b)


def test_no_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="no parts"):
        event_id.derive()


@pytest.mark.parametrize("part", [True, None, 1.5])
def test_parts_with_several_texts_for_one_value_are_refused(part: object) -> None:
    with pytest.raises(TypeError, match="expected str, int or bytes"):
        event_id.derive(part)  # type: ignore[arg-type]
