"""An instance is cut off during a rebalance until it is removed from the group: it does not repeat work that others did meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ingest.delivery.kafka import ExactlyOnce, Outgoing, State, Transform
from ingest.delivery.kafka.member import Rebalance
from ingest.lab.proxy import Api, Proxy
from tests.kafka.topics import QUICK, Topics, until


@pytest.mark.parametrize("rebalance", ["cooperative", "eager"])
@pytest.mark.slow  # a session timeout of 6 s has to pass
def test_an_instance_that_rejoins_starts_after_the_work_of_the_instance_that_took_over(
    topics: Topics, topic: Callable[..., str], full: Callable[..., str], proxy: Proxy, rebalance: Rebalance
) -> None:
    source, sink, changelog = full(30), topic(), topic(1, cleanup_policy="compact")
    at_work, go_on, stop, stop_second = (threading.Event() for _ in range(4))

    def count(record: Any, state: State) -> Iterator[Outgoing]:
        if record.value == b"7" and not at_work.is_set():
            at_work.set()
            go_on.wait(40)
        state[b"n"] = b"%d" % (int(state.get(b"n") or b"0") + 1)
        yield Outgoing(sink, b"%s is number %s" % (record.value, state[b"n"]))

    def instance(name: str, servers: str) -> Transform:
        options: dict[str, Any] = {"changelog": changelog, "records": 5, "rebalance": rebalance, "consumer_options": dict(QUICK)}
        return Transform(source, count, [sink], ExactlyOnce(f"{source}-{name}", 60_000), source, servers, **options)

    with instance("first", proxy.bootstrap_servers) as first, instance("second", topics.servers) as second:
        working = threading.Thread(target=lambda: first.run(stop=stop.is_set), daemon=True)
        taking_over = threading.Thread(target=lambda: second.run(stop=stop_second.is_set), daemon=True)
        try:
            working.start()
            assert at_work.wait(20)
            taking_over.start()
            until(lambda: first._member._consumer._coordinator.rejoin_needed, "the first instance has noticed the rebalance", 20)
            cut = proxy.cut_request(Api.JOIN_GROUP, times=1_000_000)
            go_on.set()
            until(lambda: sum(topics.committed(source, source).values()) == 30, "the second instance has processed the rest", 20)
            stop_second.set()
            taking_over.join(20)
            second._member.close()
            cut.release()
            until(first._member._consumer._coordinator.stable, "the first instance is a member again", 20)
            topics.write(source, [b"30"])
            until(lambda: sum(topics.committed(source, source).values()) == 31, "the first instance works again", 20)
        finally:
            go_on.set()
            stop.set()
            stop_second.set()
            working.join(20)
    assert second.counts.records == 20 and first.counts.records == 11
    assert topics.values(sink) == [b"%d is number %d" % (number, number + 1) for number in range(31)]
