"""Records that must not reach a table unchanged: one kind for each way in which an event can be broken.

Every poison record is a new, valid event with one change, so only the named reason breaks it. If its event id can be read, that id
occurs nowhere else in the sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ingest.lab.samples.shop import ORDERS, PAYMENTS, SampleEvent, Shop


class PoisonKind(NamedTuple):
    """A way to break an event.

    `breaks` is the broken column, or `record` if nothing can be decoded. `id_readable`: the event id can still be decoded.
    `by_contract`: a contract may accept the record (numbers as text, the last of two equal keys).
    """

    name: str
    topic: str
    breaks: str
    id_readable: bool
    by_contract: bool
    change: Callable[[bytes], bytes | None]


class Poison(NamedTuple):
    """A poison record as Kafka stores it; `value` None is a tombstone, `event_id` None means that no id can be read."""

    kind: str
    topic: str
    event_id: str | None
    key: bytes
    value: bytes | None


def poison(kind: PoisonKind, shop: Shop) -> Poison:
    """A new record of this kind: the shop's next event of the kind's topic, broken by the kind's change."""
    event: SampleEvent = next(shop.orders(1)) if kind.topic == ORDERS else shop.payment()
    return Poison(kind.name, kind.topic, event.event_id if kind.id_readable else None, event.key, kind.change(event.value))


# A column's value in the sample: a flat object, a string without inner quotes, or a number, boolean or null.
_VALUE: Final = r'(?:\{[^{}]*\}|"[^"]*"|[^,{}]+)'


def _set(column: str, json_text: str) -> Callable[[bytes], bytes]:
    """Replace the value of the first field with this name."""

    def change(value: bytes) -> bytes:
        text, count = re.subn(f'"{column}":{_VALUE}', lambda _: f'"{column}":{json_text}', value.decode(), count=1)
        assert count, f"no column {column} in {value!r}"
        return text.encode()

    return change


def _drop(column: str) -> Callable[[bytes], bytes]:
    def change(value: bytes) -> bytes:
        text, count = re.subn(f'"{column}":{_VALUE},', "", value.decode(), count=1)
        assert count, f"no column {column} in {value!r}"
        return text.encode()

    return change


def _always(value: bytes | None) -> Callable[[bytes], bytes | None]:
    return lambda _: value


def _unreadable(name: str, change: Callable[[bytes], bytes | None]) -> PoisonKind:
    return PoisonKind(name, ORDERS, "record", False, False, change)


def _order(name: str, column: str, json_text: str, *, by_contract: bool = False) -> PoisonKind:
    return PoisonKind(name, ORDERS, column, True, by_contract, _set(column, json_text))


def _payment(name: str, column: str, json_text: str, *, by_contract: bool = False) -> PoisonKind:
    return PoisonKind(name, PAYMENTS, column, True, by_contract, _set(column, json_text))


POISON_KINDS: Final = (
    _unreadable("empty_value", _always(b"")),
    _unreadable("tombstone", _always(None)),
    _unreadable("blank_value", _always(b" \n")),
    _unreadable("not_utf8", lambda value: value.replace(b'"customer_id":"C', b'"customer_id":"\xff\xfe', 1)),
    _unreadable("truncated_json", lambda value: value[: len(value) * 2 // 3]),
    _unreadable("json_number", _always(b"42")),
    _unreadable("json_string", _always(b'"order"')),
    _unreadable("json_null", _always(b"null")),
    _unreadable("json_array", _always(b"[1,2,3]")),
    _unreadable("json_array_of_objects", lambda value: b"[" + value + b"]"),
    _unreadable("two_objects", lambda value: value + value),
    _unreadable("trailing_garbage", lambda value: value + b" oops"),
    PoisonKind("id_missing", ORDERS, "order_id", False, False, _drop("order_id")),
    PoisonKind("id_null", ORDERS, "order_id", False, False, _set("order_id", "null")),
    PoisonKind("duplicate_keys", ORDERS, "status", True, True, lambda value: value[:-1] + b',"status":"placed"}'),
    PoisonKind("not_null_missing", ORDERS, "customer_id", True, False, _drop("customer_id")),
    _order("not_null_null", "currency", "null"),
    _order("number_for_string", "customer_id", "4711", by_contract=True),
    _order("object_for_string", "customer_id", '{"id":"C-1"}', by_contract=True),
    _order("object_for_decimal", "amount", '{"value":1}'),
    _order("text_for_decimal", "amount", '"twelve"'),
    _order("number_as_text", "amount", '"12.50"', by_contract=True),
    _order("not_a_number", "amount", "NaN"),
    _order("decimal_overflow", "amount", "12345678901234567890.12"),
    _order("huge_exponent", "amount", "1e400"),
    _order("decimal_scale", "amount", "12.345"),
    _order("timestamp_garbage", "ordered_at", '"yesterday"'),
    _order("timestamp_without_zone", "ordered_at", '"2025-01-01T10:00:00"'),
    _order("timestamp_impossible_date", "ordered_at", '"2025-02-30T10:00:00Z"'),
    _order("timestamp_time_only", "ordered_at", '"10:00:00Z"'),
    _order("rule_negative_amount", "amount", "-5.00"),
    _order("rule_unknown_status", "status", '"teleported"'),
    _order("nested_text_for_int", "quantity", '"two"'),
    _order("nested_decimal_scale", "unit_price", "9.999"),
    _payment("text_for_int", "attempts", '"three"'),
    _payment("fraction_for_int", "attempts", "1.5"),
    _payment("int_overflow", "attempts", "2147483648"),
    _payment("text_for_boolean", "captured", '"yes"'),
    _payment("text_for_double", "risk_score", '"high"'),
    _payment("array_for_map", "metadata", "[]"),
)
