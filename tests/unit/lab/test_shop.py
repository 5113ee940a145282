"""The sample shop: valid, exact and reproducible events; poison that breaks one field; plans that contain what their mix says."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ingest.lab.samples.manifest import Manifest
from ingest.lab.samples.mix import Mix, SampleRecord, SampleTopic, SampleTransaction, plan
from ingest.lab.samples.poison_records import POISON_KINDS, PoisonKind, poison
from ingest.lab.samples.shop import BASE_TIME_MS, ORDERS, PAYMENTS, SampleEvent, Shop
from ingest.runtime.errors import InvalidInput

TOPICS = {ORDERS: SampleTopic("orders", 4), PAYMENTS: SampleTopic("payments", 3)}


def parsed(event: SampleEvent) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(event.value, parse_float=Decimal)
    return value


@pytest.fixture(scope="module")
def events() -> list[SampleEvent]:
    return list(Shop(1).events(5000))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ids(events: list[SampleEvent]) -> None:
    assert list(Shop(1).events(5000)) == events
    assert not {e.event_id for e in Shop(2).events(5000)} & {e.event_id for e in events}


def test_the_bytes_of_events_never_change_between_releases() -> None:
    expected = '{"order_id":"01941f29-7c2c-7955-9479-caad10b41f4f","customer_id":"C-048619","status":"paid","channel":"store",'
    expected += '"currency":"USD","amount":56.84,"ordered_at":"2025-01-01T00:00:00.044Z","shippin'
    assert next(Shop(1).orders(1)).value.decode().startswith(expected)


def test_ids_are_unique_and_ordered_by_the_shops_clock(events: list[SampleEvent]) -> None:
    ids = [e.event_id for e in events]
    assert len(set(ids)) == len(ids)
    assert [i[:13] for i in ids] == sorted(i[:13] for i in ids)
    assert int(ids[0].replace("-", "")[:12], 16) - BASE_TIME_MS < 100


def test_the_amount_of_an_order_is_exactly_the_sum_of_its_lines(events: list[SampleEvent]) -> None:
    for order in (parsed(e) for e in events if e.topic == ORDERS):
        assert sum(line["quantity"] * line["unit_price"] for line in order["lines"]) == order["amount"]
        assert order["amount"].as_tuple().exponent == -2
        assert dt.datetime.fromisoformat(order["ordered_at"]).tzinfo is not None
        assert list(order)[:6] == ["order_id", "customer_id", "status", "channel", "currency", "amount"]
        assert list(order)[6:9] == ["ordered_at", "shipping_address", "lines"] and set(list(order)[9:]) <= {"coupon"}


def test_a_payment_pays_an_earlier_order_in_full(events: list[SampleEvent]) -> None:
    orders: dict[str, dict[str, Any]] = {}
    unknown: Counter[str] = Counter()
    for event in events:
        value = parsed(event)
        assert event.key.decode() == value["order_id"]
        if event.topic == ORDERS:
            orders[event.event_id] = value
            continue
        order = orders[value["order_id"]]
        assert (value["amount"], value["currency"]) == (order["amount"], order["currency"])
        assert 0 < value["fee"] < value["amount"] and value["fee"].as_tuple().exponent == -4
        assert 1 <= value["attempts"] <= 3 and isinstance(value["captured"], bool)
        unknown.update(value.keys() & {"loyalty_points", "device", "tags"})
    assert len(unknown) == 3
    assert 0.35 < 1 - len(orders) / len(events) < 0.45


@pytest.mark.parametrize("kind", POISON_KINDS, ids=lambda kind: kind.name)
def test_each_kind_of_poison_breaks_its_own_field_and_nothing_else(kind: PoisonKind) -> None:
    broken = poison(kind, Shop(3))
    shop = Shop(3)
    valid = parsed(next(shop.orders(1)) if kind.topic == ORDERS else shop.payment())
    try:
        value = json.loads(broken.value or b"", parse_float=Decimal)
    except ValueError:
        value = None
    if kind.breaks == "record":
        assert not isinstance(value, dict)
        return
    assert isinstance(value, dict)
    id_column = f"{kind.topic[:-1]}_id"
    assert broken.event_id == value.get(id_column)
    nested = {"quantity", "unit_price"}
    differing = {name for name in valid if value.get(name) != valid[name]}
    assert differing <= ({"lines"} if kind.breaks in nested else {kind.breaks})
    assert differing or kind.name == "duplicate_keys"


def test_poison_kinds_have_unique_names() -> None:
    assert len({kind.name for kind in POISON_KINDS}) == len(POISON_KINDS)


def flat(transactions: list[SampleTransaction]) -> list[SampleRecord]:
    return [record for transaction in transactions for record in transaction.records]


def test_a_plan_contains_every_event_retries_poison_and_aborted_transactions() -> None:
    made = list(plan(Mix(20_000, poison=100), TOPICS, seed=5))
    records = flat(made)
    good = Counter(r.event_id for r in records if r.poison is None)
    assert len(good) == 20_000
    retries = sum(good.values()) - 20_000
    assert retries == sum(t.retries for t in made)
    assert 800 < retries < 1200
    kinds = Counter(r.poison for r in records if r.poison is not None)
    assert sum(kinds.values()) == 100 and len(kinds) == len(POISON_KINDS)
    lost = [t.alongside for t in made if t.alongside is not None]
    assert len(lost) == 1 and lost[0].intent == "abort"
    assert not {r.event_id for r in lost[0].records} & {r.event_id for r in records}
    values: dict[str | None, set[bytes | None]] = {}
    places: dict[str | None, set[int]] = {}
    for record in records:
        values.setdefault(record.event_id, set()).add(record.value)
        places.setdefault(record.event_id, set()).add(record.partition)
    assert all(len(values[event_id]) == 1 for event_id in good)
    assert any(len(places[event_id]) > 1 for event_id in good), "no retry in another partition"


@pytest.mark.parametrize(("share", "lost"), [(0.0, 0), (0.001, 1), (0.5, 10), (1.0, 20)])
def test_a_plan_aborts_the_given_share_of_transactions(share: float, lost: int) -> None:
    made = list(plan(Mix(2000, duplicate_share=0, aborted_share=share, transaction_records=100), TOPICS, seed=5))
    assert len(made) == 20 and sum(t.alongside is not None for t in made) == lost


def test_a_plan_depends_on_the_seed_alone() -> None:
    assert list(plan(Mix(2000, poison=10), TOPICS, 1)) == list(plan(Mix(2000, poison=10), TOPICS, 1))
    assert list(plan(Mix(2000), TOPICS, 1)) != list(plan(Mix(2000), TOPICS, 2))


@pytest.mark.parametrize("mix", [Mix(0), Mix(0, poison=3), Mix(1, poison=50), Mix(30, duplicate_share=1.0, transaction_records=2)])
def test_small_plans_terminate(mix: Mix) -> None:
    records = flat(list(plan(mix, {ORDERS: SampleTopic("o", 1)}, seed=1)))
    assert len({r.event_id for r in records if r.poison is None}) == mix.events
    assert sum(r.poison is not None for r in records) == mix.poison
    assert {r.topic for r in records} <= {"o"}


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="payment_share"):
        next(Shop(1).events(1, 0.9))
    with pytest.raises(ValueError, match="duplicate_share"):
        Mix(1, duplicate_share=2)


def test_a_manifest_never_mixes_two_runs(tmp_path: Path) -> None:
    with Manifest(tmp_path / "m") as manifest:
        manifest.sample(seed=1, topics={"orders": 1})
    with pytest.raises(InvalidInput, match="MANIFEST_EXISTS"):
        Manifest(tmp_path / "m")
