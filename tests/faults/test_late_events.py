"""Events that are decades late, out of order, or sent again with another time: none is lost, and each is one row (I3)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from random import Random

import pytest

from ingest.lab.samples.mix import ShopSource, SourceOf
from ingest.lab.samples.poison_records import Poison
from ingest.lab.samples.shop import ORDERS, SampleEvent
from tests.faults.conftest import PipelineFactory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

AT = re.compile(rb'(?<="ordered_at":")[^"]+')
SINCE, UNTIL = dt.datetime(1972, 1, 1), dt.datetime(2090, 1, 1)


class Late:
    """The shop's orders in random order, each at a random time between 1972 and 2090. Another `salt` gives other orders and times."""

    def __init__(self, name: str, salt: int) -> None:
        self._shop = ShopSource(name, {ORDERS: ORDERS}, 0)
        self._random = Random(f"{name}/{salt}")

    def events(self, count: int) -> Iterator[SampleEvent]:
        events = list(self._shop.events(count))
        self._random.shuffle(events)
        for event in events:
            at = SINCE + dt.timedelta(milliseconds=self._random.randrange(int((UNTIL - SINCE).total_seconds() * 1000)))
            yield event._replace(value=AT.sub(f"{at.isoformat(timespec='milliseconds')}Z".encode(), event.value))

    def poison(self, number: int) -> Poison:
        return self._shop.poison(number)


def late(salt: int) -> SourceOf:
    return lambda name: Late(name, salt)


def test_events_late_out_of_order_or_resent_with_another_time_are_one_row_each(pipeline: PipelineFactory) -> None:
    """The second production repeats all ids in another order and with other times. The copy in the earlier batch stays the row."""
    lake = pipeline(batch=1500)
    lake.produce(2500, poison=20, source_of=late(1))
    lake.complete()
    rows = lake.commits()[-1].version
    lake.produce(2500, source_of=late(2))
    lake.complete()
    assert lake.commits()[-1].version > rows
    lake.judge().assert_clean()
