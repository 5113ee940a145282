"""Transforms with killed instances: each input has its effect once and in order, and no output is visible before its commit."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ingest.lab.proxy import Api, Proxy
from tests.kafka.instance import STEPS, Instance
from tests.kafka.topics import Topics, until

Start = Callable[[Mapping[str, Any]], Instance]
KEYS = 7


class Scene:
    """Topics and a group: writes the source and checks the output."""

    def __init__(self, topics: Topics, topic: Callable[..., str], source: str, partitions: int) -> None:
        self.topics = topics
        self.partitions = partitions
        names = {"source": source, "sink": topic(3), "audit": topic(1)}
        names["changelog"] = topic(partitions, cleanup_policy="compact")
        self.settings: dict[str, Any] = {"servers": topics.servers, "group": names["source"], **names}
        self.source, self.sink, self.group = names["source"], names["sink"], names["source"]
        self.written = 0

    def instance(self, number: int = 0, **more: Any) -> dict[str, Any]:
        return {**self.settings, "transactional_id": f"{self.group}-{number}", **more}

    def write(self, count: int) -> None:
        values = [b"%d" % number for number in range(self.written, self.written + count)]
        self.topics.write(self.source, values, lambda number: b"key-%d" % ((self.written + number) % KEYS))
        self.written += count

    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self.topics.values(self.sink)]

    def only_whole_transactions_are_visible(self) -> None:
        """The outputs visible with read_committed are exactly those of the committed offsets."""
        until(lambda: self._covered() == len(self.seen()), "the visible outputs are those of the committed offsets", 5)

    def _covered(self) -> int:
        return sum(self.topics.committed(self.source, self.group).values())

    def killed_under_load(self, doomed: Instance, records: int) -> None:
        """Keep writing until the instance has killed itself."""

        def dead() -> bool:
            self.write(records)
            return doomed.process.poll() is not None

        until(dead, "the instance has killed itself", 60)
        doomed.killed()

    def complete(self) -> None:
        until(lambda: self._covered() == self.written, "all inputs are committed")
        until(lambda: self.topics.stable(self.sink), "no transaction is open")
        seen = self.seen()
        assert sorted(int(each["input"]) for each in seen) == list(range(self.written)), "each input once, none lost"
        assert sorted(self.topics.values(self.settings["audit"])) == sorted(self.topics.values(self.sink)), (
            "both sinks contain the same outputs"
        )
        by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in seen:
            by_key[each["key"]].append(each)
        for of_key in by_key.values():
            counted = list(range(1, len(of_key) + 1)) if self.settings["changelog"] else [0] * len(of_key)
            assert [each["number"] for each in of_key] == counted, "the state counted each input once"
            assert [int(each["input"]) for each in of_key] == sorted(int(each["input"]) for each in of_key), "order within a key"


@pytest.fixture
def scene(topics: Topics, topic: Callable[..., str], begun: Callable[..., str]) -> Callable[[int], Scene]:
    return lambda partitions: Scene(topics, topic, begun(partitions), partitions)


def test_one_instance_killed_between_every_two_steps_gives_each_effect_once(scene: Callable[[int], Scene], instances: Start) -> None:
    stage = scene(2)
    for step in STEPS:
        stage.write(30)
        doomed = instances(stage.instance(instance="static-0", at=step, nth=25 if step == "worked" else 1))
        doomed.killed()
        stage.only_whole_transactions_are_visible()
    last = instances(stage.instance(instance="static-0"))
    stage.complete()
    last.stop()


@pytest.mark.parametrize(("count", "rebalance"), [(2, "cooperative"), (2, "eager"), (4, "cooperative"), (4, "eager")], ids=str)
@pytest.mark.slow
def test_several_instances_killed_between_every_two_steps_give_each_effect_once(
    scene: Callable[[int], Scene], instances: Start, count: int, rebalance: str
) -> None:
    stage = scene(4)
    alive = {number: instances(stage.instance(number, rebalance=rebalance)) for number in range(count)}
    for each in alive.values():
        each.wait_for("started")
    for number, step in enumerate(STEPS):
        at = number % count
        alive.pop(at).kill()  # at any moment: the others take over its partitions when its session times out
        stage.write(200)
        doomed = instances(stage.instance(at, rebalance=rebalance, at=step))
        stage.killed_under_load(doomed, 20)
        alive[at] = instances(stage.instance(at, rebalance=rebalance))
    stage.complete()
    for each in alive.values():
        each.stop()


@pytest.mark.slow
@pytest.mark.parametrize("rebalance", ["cooperative", "eager"])
def test_instances_that_come_and_go_under_load_give_each_effect_once(
    scene: Callable[[int], Scene], instances: Start, rebalance: str
) -> None:
    stage = scene(4)
    stage.write(1500)
    first = instances(stage.instance(0, rebalance=rebalance))
    first.wait_for("started")
    second = instances(stage.instance(1, rebalance=rebalance))
    second.wait_for("started")
    stage.write(1500)
    third = instances(stage.instance(2, rebalance=rebalance, at="sent", nth=2))
    stage.killed_under_load(third, 50)
    first.stop()
    stage.write(500)
    third = instances(stage.instance(2, rebalance=rebalance))
    stage.complete()
    counts = [second.stop(), third.stop()]
    assert counts[0]["records"] > 0


@pytest.mark.slow  # docs/tutorial/delivery.md covers it in make test
def test_a_zombie_that_wakes_with_an_open_transaction_is_fenced_by_the_group(scene: Callable[[int], Scene], instances: Start) -> None:
    """The broker would still commit its transaction. Only the group generation sent with the offsets shows that it is a zombie."""
    stage = scene(1)
    stage.settings["changelog"] = None  # with one, the successor would wait for the open transaction in it
    stage.write(30)
    zombie = instances(stage.instance(0, at="flushed", signal="SIGSTOP", transaction_timeout_ms=120_000))
    zombie.wait_for("reached flushed")
    successor = instances(stage.instance(1))
    until(lambda: stage._covered() == 30, "the successor owns the partition and has done the work")
    assert not stage.topics.stable(stage.sink)
    zombie.process.send_signal(signal.SIGCONT)
    stage.complete()
    successor.stop()
    stage.write(30)
    stage.complete()
    assert zombie.stop()["repeated"] == 1, "the zombie abandoned its transaction and rejoined the group"


@pytest.mark.slow
def test_the_next_owner_of_a_partition_waits_for_offsets_of_an_open_transaction(scene: Callable[[int], Scene], instances: Start) -> None:
    stage = scene(1)
    stage.write(30)
    zombie = instances(stage.instance(0, at="offsets_sent", signal="SIGSTOP"))
    zombie.wait_for("reached offsets_sent")
    successor = instances(stage.instance(1))
    stage.complete()  # after the broker has aborted the zombie's transaction
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.process.wait(30) == 1 and "PRODUCER_FENCED" in zombie.log.read_text()
    stage.write(30)
    stage.complete()
    successor.stop()


def test_an_instance_killed_before_the_reply_to_its_commit_gives_each_effect_once(
    scene: Callable[[int], Scene], instances: Start, proxy: Proxy
) -> None:
    stage = scene(1)
    stage.write(30)
    held = proxy.hold_reply(Api.END_TXN)
    doomed = instances(stage.instance(servers=proxy.bootstrap_servers, instance="static-0"))
    held.wait(30)
    doomed.kill()
    held.release()
    last = instances(stage.instance(instance="static-0"))
    stage.write(30)
    stage.complete()
    last.stop()


@pytest.mark.parametrize(
    "api",
    [
        Api.END_TXN,
        pytest.param(Api.PRODUCE, marks=pytest.mark.slow),
        pytest.param(Api.TXN_OFFSET_COMMIT, marks=pytest.mark.slow),
    ],
)
def test_a_lost_reply_causes_no_duplicate(scene: Callable[[int], Scene], instances: Start, proxy: Proxy, api: Api) -> None:
    stage = scene(1)
    stage.write(60)
    lost = proxy.cut_reply(api, times=2)
    running = instances(stage.instance(servers=proxy.bootstrap_servers))
    lost.wait(30)
    stage.complete()
    running.stop()
