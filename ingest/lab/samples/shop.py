"""Seeded events of a shop: orders and their payments, for the demo, the benchmarks and the tests.

The same seed and base time give the same bytes on any machine; the wall clock is never read. Values are JSON in UTF-8. Decimals are
numbers with exact text (`19.90`, never a float). For speed, addresses and order lines are made once per seed, and an event is one
formatted string: json.dumps of a dict would take longer than everything else that a producer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Final, NamedTuple

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
# 2025-01-01T00:00:00Z: fixed, so that a sample does not depend on the time of its creation.
BASE_TIME_MS: Final = 1_735_689_600_000

_STATUSES: Final = ("placed", "paid", "paid", "shipped", "shipped", "cancelled")
_CHANNELS: Final = ("web", "web", "app", "store")
_CURRENCIES: Final = ("EUR", "EUR", "EUR", "USD", "GBP", "PLN")
_COUPONS: Final = (*("",) * 6, ',"coupon":null', ',"coupon":"WELCOME10"', ',"coupon":"ÉTÉ25"', ',"coupon":"free shipping"')
# Streets and towns contain non-ASCII text on purpose: one in decomposed form, one outside the Basic Multilingual Plane.
_STREETS: Final = ("Hauptstraße", "Rue de l’Église", "ul. Świętokrzyska", "Baker Street", "Calle Mayor", "Cafe\u0301 Lane", "🌻 Allee")
_TOWNS: Final = (
    ("Berlin", "10115", "DE"),
    ("Zürich", "8001", "CH"),
    ("Łódź", "90-001", "PL"),
    ("Lyon", "69001", "FR"),
    ("London", "NW1 6XE", "GB"),
    ("Austin", "78701", "US"),
)
_METADATA: Final = (
    "{}",
    '{"terminal":"T-17"}',
    '{"gateway":"eu-1","3ds":"yes"}',
    '{"gateway":"us-2","note":"paid \\"in full\\""}',
    '{"bank":"Sparkasse Köln","reference":""}',
)
# Fields that no contract declares. One payment in five has some, as after an unannounced upstream release.
_UNKNOWN: Final = (
    *("",) * 12,
    ',"loyalty_points":120',
    ',"device":{"os":"ios","app":"5.2.1"}',
    ',"tags":["gift","express"],"experiment":"b"',
)


class SampleEvent(NamedTuple):
    """One event as Kafka stores it: topic (ORDERS or PAYMENTS), event id, key (the order id in UTF-8), value (JSON, UTF-8)."""

    topic: str
    event_id: str
    key: bytes
    value: bytes


class Shop:
    """An endless, reproducible source of events.

    `base_time_ms` is the time of the first order in milliseconds since 1970-01-01 UTC. Orders are 40 ms apart on average, and one in a
    hundred has an `ordered_at` hours earlier (an offline till). Ids are UUIDv7 of the shop's own clock. Within a seed
    they never repeat, unless the caller repeats an event on purpose.
    """

    def __init__(self, seed: int | str, base_time_ms: int = BASE_TIME_MS) -> None:
        self._random = Random(f"shop/{seed}")
        self._now_ms = base_time_ms
        self._addresses = [self._address() for _ in range(1024)]
        self._lines = [self._order_lines() for _ in range(4096)]
        self._second = -1
        self._second_text = ""

    def orders(self, count: int) -> Iterator[SampleEvent]:
        """`count` orders with distinct order ids."""
        for _ in range(count):
            yield self._order()[0]

    def events(self, count: int, payment_share: float = 0.4) -> Iterator[SampleEvent]:
        """`count` events, about `payment_share` of them payments; each payment follows the order that it pays.

        Raises ValueError unless 0 <= payment_share <= 0.5 (an order is paid at most once).
        """
        if not 0 <= payment_share <= 0.5:
            raise ValueError(f"payment_share is {payment_share}; expected 0 to 0.5.")
        paid_share = payment_share / (1 - payment_share)
        draw = self._random.random
        made = 0
        while made < count:
            order, cents, currency = self._order()
            made += 1
            yield order
            if made < count and draw() < paid_share:
                made += 1
                yield self._payment(order, cents, currency)

    def payment(self) -> SampleEvent:
        """A payment for an order that is not returned itself."""
        return self._payment(*self._order())

    def _order(self) -> tuple[SampleEvent, int, str]:
        draw = self._random.getrandbits
        bits = draw(56)  # one draw cut into pieces is faster than one draw per choice
        self._now_ms += bits % 80
        order_id = self._uuid7()
        ordered_ms = self._now_ms - (3_600_000 * (1 + (bits >> 8) % 20) if bits % 101 == 0 else 0)
        lines, cents = self._lines[bits >> 8 & 4095]
        currency = _CURRENCIES[(bits >> 20) % 6]
        text = (
            f'{{"order_id":"{order_id}","customer_id":"C-{bits >> 26 & 65535:06d}","status":"{_STATUSES[(bits >> 5) % 6]}"'
            f',"channel":"{_CHANNELS[bits >> 42 & 3]}","currency":"{currency}","amount":{cents // 100}.{cents % 100:02d}'
            f',"ordered_at":"{self._iso(ordered_ms)}","shipping_address":{self._addresses[bits >> 44 & 1023]}'
            f',"lines":{lines}{_COUPONS[(bits >> 30) % 10]}}}'
        )
        return SampleEvent(ORDERS, order_id, order_id.encode(), text.encode()), cents, currency

    def _payment(self, order: SampleEvent, cents: int, currency: str) -> SampleEvent:
        bits = self._random.getrandbits(48)
        payment_id = self._uuid7()
        fee = cents * 149 // 100 + 2500  # 1.49 % and 0.25, in ten-thousandths
        method = ("card", "card", "transfer", "wallet")[bits & 3]
        last4 = f'"{bits >> 2 & 8191:04d}"' if method == "card" else "null"
        risk = "null" if bits >> 15 & 7 == 0 else f"0.{bits >> 18 & 8191:04d}"
        text = (
            f'{{"payment_id":"{payment_id}","order_id":"{order.event_id}","method":"{method}"'
            f',"amount":{cents // 100}.{cents % 100:02d},"fee":{fee // 10000}.{fee % 10000:04d},"currency":"{currency}"'
            f',"paid_at":"{self._iso(self._now_ms)}","captured":{"true" if bits >> 31 & 15 else "false"}'
            f',"attempts":{1 + (bits >> 35) % 3},"risk_score":{risk},"card_last4":{last4}'
            f',"metadata":{_METADATA[(bits >> 38) % 5]}{_UNKNOWN[(bits >> 41) % 15]}}}'
        )
        return SampleEvent(PAYMENTS, payment_id, order.key, text.encode())

    def _uuid7(self) -> str:
        tail = self._random.getrandbits(74)
        ms = f"{self._now_ms:012x}"
        return f"{ms[:8]}-{ms[8:]}-7{tail >> 62:03x}-{tail >> 48 & 0x3FFF | 0x8000:04x}-{tail & 0xFFFFFFFFFFFF:012x}"

    def _iso(self, ms: int) -> str:
        second = ms // 1000
        if second != self._second:
            self._second, self._second_text = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{ms % 1000:03d}Z"

    def _address(self) -> str:
        pick = self._random
        city, postal_code, country = pick.choice(_TOWNS)
        street = f"{pick.choice(_STREETS)} {pick.randint(1, 199)}"
        return f'{{"street":"{street}","city":"{city}","postal_code":"{postal_code}","country":"{country}"}}'

    def _order_lines(self) -> tuple[str, int]:
        """One to three order lines as JSON, and their sum in cents, which is the order's amount."""
        pick, total, lines = self._random, 0, []
        for _ in range(pick.choice((1, 1, 1, 2, 2, 3))):
            quantity, cents = pick.choice((1, 1, 1, 2, 3, 10)), pick.randint(99, 49_999)
            total += quantity * cents
            lines.append(f'{{"sku":"SKU-{pick.randint(1, 9999):05d}","quantity":{quantity},"unit_price":{cents // 100}.{cents % 100:02d}}}')
        return f"[{','.join(lines)}]", total
