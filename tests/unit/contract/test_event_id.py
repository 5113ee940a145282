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

from ingest.contract import event_id
from ingest.contract.definition import Contract
from ingest.runtime.errors import InvalidInput

PART = st.one_of(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(), st.binary())


@pytest.fixture(autouse=True, scope="module")
def process_memory_restored() -> Iterator[None]:
    """These tests mint ids of the far future; later tests must not continue from there."""
    last = event_id._last
    yield
    event_id._last = last


def test_a_minted_id_is_a_version_7_uuid_with_its_timestamp() -> None:
    made = uuid.UUID(event_id.mint(1_700_000_000_123, Random(1)))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == 1_700_000_000_123


def test_a_minted_id_with_a_seed_is_the_same_each_time() -> None:
    assert event_id.mint(5, Random(7)) == event_id.mint(5, Random(7))


@given(st.lists(st.integers(0, 2**48 - 2), min_size=2, max_size=50))
def test_minted_ids_strictly_increase_even_if_the_clock_goes_back(clock: list[int]) -> None:
    minted = [event_id.mint(ms) for ms in clock]
    assert minted == sorted(set(minted))


def test_minted_ids_continue_in_the_next_millisecond_when_one_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_id, "_last", (1000, 2**74 - 1))
    made = uuid.UUID(event_id.mint(1000))
    assert made.int >> 80 == 1001


def test_threads_never_mint_the_same_id_twice() -> None:
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
def test_a_time_outside_48_bits_is_refused(ms: int) -> None:
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


def test_deriving_an_id_from_no_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="no parts"):
        event_id.derive()


@pytest.mark.parametrize("part", [True, None, 1.5])
def test_key_parts_without_a_unique_text_form_are_refused(part: object) -> None:
    with pytest.raises(TypeError, match="expected str, int or bytes"):
        event_id.derive(part)  # type: ignore[arg-type]


def contract_with(event_id_at: object, kind: str = "STRING") -> Contract:
    columns = [
        {"name": "order_id", "type": kind, "nullable": False},
        {"name": "shop", "type": "STRING", "nullable": False},
        {"name": "number", "type": "BIGINT", "nullable": False},
    ]
    document = {"pipeline": "shop", "table": "orders", "source": {"topic": "orders", "format": "json"}, "columns": columns}
    return Contract.model_validate({**document, "event_id": event_id_at})


def test_stamp_puts_the_id_where_the_contract_reads_it() -> None:
    event = {"shop": "a"}
    in_column = event_id.stamp(contract_with(["order_id"]), event)
    assert in_column.value == {"shop": "a", "order_id": in_column.event_id[0]} and event == {"shop": "a"}
    in_key = event_id.stamp(contract_with("key"), event)
    assert (in_key.key, in_key.value) == (in_key.event_id[0].encode(), event)
    in_header = event_id.stamp(contract_with("header:id"), event, headers=[("x", b"y")])
    assert list(in_header.headers) == [("x", b"y"), ("id", in_header.event_id[0].encode())]
    assert {uuid.UUID(made.event_id[0]).version for made in (in_column, in_key, in_header)} == {7}


@pytest.mark.parametrize("place", [["order_id"], "key", "header:id"])
def test_an_existing_id_is_kept_through_every_retry(place: object) -> None:
    contract = contract_with(place)
    first = event_id.stamp(contract, {"shop": "a"}, key=None)
    again = event_id.stamp(contract, first.value, key=first.key, headers=first.headers)
    assert again == first


@pytest.mark.parametrize("place", [["order_id"], "key", "header:id"])
def test_an_empty_id_is_replaced_by_a_new_one(place: object) -> None:
    """Otherwise all events with an empty id would be one row."""
    made = [event_id.stamp(contract_with(place), {"order_id": ""}, key=b"", headers=[("id", b"")]).event_id for _ in range(2)]
    assert made[0] != made[1] and "" not in (*made[0], *made[1])


def test_the_id_is_derived_from_the_natural_key_if_the_source_has_one() -> None:
    contract = contract_with(["order_id"])
    made = [event_id.stamp(contract, {"shop": "a", "number": 7, "amount": amount}, natural_key=["shop", "number"]) for amount in (1, 2)]
    assert made[0].event_id == made[1].event_id == (event_id.derive("a", 7),)
    with pytest.raises(InvalidInput, match=r"NATURAL_KEY_MISSING.*number"):
        event_id.stamp(contract, {"shop": "a"}, natural_key=["shop", "number"])


def test_ids_of_several_columns_or_of_another_type_must_come_from_the_source() -> None:
    both = event_id.stamp(contract_with(["shop", "number"]), {"shop": "a", "number": 7})
    assert both.event_id == ("a", "7")
    with pytest.raises(InvalidInput, match="EVENT_ID_NOT_OURS"):
        event_id.stamp(contract_with(["shop", "number"]), {"shop": "a"})
    with pytest.raises(InvalidInput, match=r"EVENT_ID_NOT_OURS.*BIGINT"):
        event_id.stamp(contract_with(["order_id"], "BIGINT"), {"shop": "a"})


def test_an_event_whose_id_is_its_position_cannot_be_stamped() -> None:
    document = {"pipeline": "shop", "table": "raw", "source": {"topic": "t", "format": "raw"}, "event_id": "position"}
    with pytest.raises(InvalidInput, match="position"):
        event_id.stamp(Contract.model_validate(document), {})


def test_the_last_header_of_the_name_is_the_event_id() -> None:
    made = event_id.stamp(contract_with("header:id"), {}, headers=[("id", b"old"), ("id", b"new")])
    assert made.event_id == ("new",)
