"""Effect consumers: copies, order, records without a call, and when an offset is committed."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from sqlalchemy import Engine, select

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.database.tables import dead_letter
from ingest.delivery.effects import EffectConsumer, Effected, Effects
from ingest.delivery.kafka import GuaranteeBroken, PoisonRecord, begin_group
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe
from ingest.lab.broker.broker_probe import admin
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.payment_service import PaymentService
from ingest.runtime.errors import InvalidInput, RunStopped
from tests.database.effects_scene import Payments, emptied, request
from tests.kafka.topics import QUICK, Topics
from tests.polling import until

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def shared(new_database: Callable[[], str]) -> Iterator[Engine]:
    made = connect(new_database())
    schema.migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def engine(shared: Engine) -> Engine:
    """One database for this module's tests, empty for each of them."""
    return emptied(shared)


@pytest.fixture
def payments(engine: Engine, tmp_path: Path) -> Iterator[Payments]:
    with PaymentService(tmp_path / "charges.jsonl") as service:
        yield Payments(engine, service)


@pytest.fixture
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap_servers)


def event_of(record: Any) -> str:
    event: str = json.loads(record.value)["event"]
    return event


def consumer(effects: Effects, topics: Topics, topic: str, **more: Any) -> EffectConsumer:
    given: dict[str, Any] = {"event_id": event_of, "request_of": lambda record: record.value, **QUICK, **more}
    return EffectConsumer(effects, topic, topic, topics.servers, **given)


def consume(effects: Effects, topics: Topics, topic: str, **more: Any) -> Effected:
    with consumer(effects, topics, topic, **more) as reading:
        return reading.run(idle_s=2.0)  # on a busy machine a broker may need a second to find its leader


def test_each_event_is_charged_once_however_often_its_record_is_in_the_topic(payments: Payments, topics: Topics, begun: MakeTopic) -> None:
    name, events = begun(3), [f"order-{number}" for number in range(20)]
    topics.write(name, [request(event) for event in events * 3], lambda number: b"key-%d" % number)
    counts = consume(payments.offers("look-up"), topics, name)
    assert (counts.success, counts.duplicates) == (20, 40)
    payments.charged_once(events)
    assert payments.service.requests == {"POST": 20} and sum(topics.committed(name, name).values()) == 60
    row = payments.row("order-7")
    assert event_of(topics.read(name)[0]) in events and row.topic == name and row.partition is not None and row.offset is not None
    topics.write(name, [request(event) for event in events])
    assert consume(payments.offers("look-up"), topics, name).duplicates == 20 and payments.service.requests == {"POST": 20}


def test_calls_of_one_key_are_made_in_their_order_even_if_some_need_several_attempts(
    payments: Payments, topics: Topics, begun: MakeTopic
) -> None:
    name = begun(2)
    events = [f"order-{number}" for number in range(40)]
    topics.write(name, map(request, events), lambda number: b"key-%d" % (number % 4))
    payments.service.fault("error_before", 6)
    payments.service.fault("close_after", 6)
    assert consume(payments.offers("look-up"), topics, name).success == 40
    of_key = defaultdict(list)
    for charge in payments.service.charges:
        number = int(charge["event"].partition("-")[2])
        of_key[number % 4].append(number)
    assert len(of_key) == 4 and all(numbers == sorted(numbers) for numbers in of_key.values())


def test_records_without_a_usable_id_or_request_are_kept_with_their_bytes(
    payments: Payments, broker: Broker, topics: Topics, begun: MakeTopic
) -> None:
    name = begun()
    bad: list[bytes | None] = [b"\xff", None, request(""), request("a" * 256), request("a\0b"), json.dumps({"event": 7}).encode()]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number, value in enumerate([*bad, request("no-request")]):
        producer.send(name, value, key=b"k%d" % number, headers=[("trace", b"\x00\xff"), ("trace", b"")])
    producer.send(name, request("order-1"))
    producer.close()

    def request_of(record: Any) -> bytes:
        return None if b"no-request" in record.value else record.value  # type: ignore[return-value]

    counts = consume(payments.offers("look-up"), topics, name, request_of=request_of)
    assert (counts.success, counts.dead) == (1, 7)
    assert topics.committed(name, name) == {0: 8}
    with payments.engine.connect() as connection:
        letters = connection.execute(select(dead_letter).order_by(dead_letter.c.offset)).all()
    assert [letter.value for letter in letters] == [*bad, request("no-request")] and {letter.sink for letter in letters} == {"charge"}
    assert [letter.key for letter in letters] == [b"k%d" % number for number in range(7)]
    assert json.loads(letters[0].headers) == [["trace", b64encode(b"\x00\xff").decode()], ["trace", ""]]
    assert letters[0].topic_id == describe(KafkaOptions(broker.bootstrap_servers), name).id
    assert (letters[6].event_id, letters[0].event_id) == ("no-request", None) and "NoneType" in letters[6].error


def test_without_dead_letters_a_bad_record_ends_the_run_and_nothing_behind_it_is_acknowledged(
    payments: Payments, topics: Topics, begun: MakeTopic
) -> None:
    name = begun()
    topics.write(name, [request("order-1"), b"?", request("order-2")])
    charge = payments.offers("look-up")
    with consumer(charge, topics, name, dead_letter=False) as reading:
        for _ in range(2):
            with pytest.raises(PoisonRecord, match=r"\[0\]@1"):
                reading.run(idle_s=5)
    assert topics.committed(name, name) == {0: 1} and payments.charges() == {"order-1": 1}
    assert consume(charge, topics, name).dead == 1
    payments.charged_once(["order-1", "order-2"])


@pytest.mark.slow
def test_records_that_need_no_call_are_only_acknowledged(payments: Payments, topics: Topics, begun: MakeTopic) -> None:
    name = begun()
    topics.write(name, [b"other", request("order-1"), b"other"])
    counts = consume(payments.offers("look-up"), topics, name, needed=lambda record: record.value != b"other")
    assert (counts.success, counts.no_call, counts.dead) == (1, 2, 0) and topics.committed(name, name) == {0: 3}


def test_a_stop_while_the_api_is_down_leaves_records_unacknowledged_for_the_next_run(
    payments: Payments, topics: Topics, begun: MakeTopic
) -> None:
    name, events = begun(), [f"order-{number}" for number in range(6)]
    charge = payments.offers("look-up")
    topics.write(name, map(request, events[:3]), lambda number: b"a")
    assert consume(charge, topics, name).success == 3
    payments.service.stop()
    topics.write(name, map(request, events[3:]), lambda number: b"a")
    stopping = threading.Event()
    with consumer(charge, topics, name) as reading:
        with ThreadPoolExecutor() as pool:
            running = pool.submit(reading.run, stop=stopping.is_set)
            until(lambda: payments.states().get("order-3") == "WAITING", "the first call waits for the API", 20)
            stopping.set()
            running.result(20)
        assert topics.committed(name, name) == {0: 3} and "order-4" not in payments.states()
        payments.service.start()
        reading.run(idle_s=1)
    assert topics.committed(name, name) == {0: 6}
    payments.charged_once(events)


@pytest.mark.slow
def test_held_and_failed_calls_are_acknowledged(payments: Payments, topics: Topics, begun: MakeTopic) -> None:
    name = begun()
    payments.service.declines_over_cents = 500
    payments.service.fault("close_before")
    topics.write(name, [request("order-1"), request("order-2", 501), request("order-3")], lambda number: b"a")
    counts = consume(payments.offers("neither"), topics, name)
    assert (counts.held, counts.failed, counts.success) == (1, 1, 1) and topics.committed(name, name) == {0: 3}
    assert payments.states() == {"order-1": "HELD", "order-2": "FAILED", "order-3": "SUCCESS"}


@pytest.mark.slow
def test_calls_that_take_longer_than_the_group_waits_do_not_cost_the_membership(
    payments: Payments, topics: Topics, begun: MakeTopic
) -> None:
    name = begun()
    topics.write(name, [request(f"order-{number}") for number in range(4)], lambda number: b"a")
    payments.service.slow_s = 1.2
    payments.service.fault("slow_before", 4)
    generations: set[int] = set()
    members: list[EffectConsumer] = []

    def on_step(step: str) -> None:
        generations.add(members[0]._member.group.generation_id)

    charge = payments.offers("look-up", timeout_s=4.0, lease_s=10.0, on_step=on_step)
    with consumer(charge, topics, name, max_poll_interval_ms=2_500) as reading:
        members.append(reading)
        assert reading.run(idle_s=0.5).success == 4
    assert len(generations) == 1 and topics.committed(name, name) == {0: 4}


@pytest.mark.slow
def test_partitions_that_move_while_calls_are_under_way_double_nothing(payments: Payments, topics: Topics, begun: MakeTopic) -> None:
    name, events = begun(4), [f"order-{number}" for number in range(120)]
    topics.write(name, map(request, events), lambda number: b"key-%d" % number)
    payments.service.slow_s = 0.3
    payments.service.fault("slow_before", 60)
    stopping = threading.Event()

    def run(number: int) -> Effected:
        charge = payments.offers("look-up", worker=f"w{number}")
        if number:
            until(lambda: len(payments.charges()) > 10 * number, "the others are at work", 60)
        with consumer(charge, topics, name, workers=2, records=40) as reading:
            return reading.run(stop=stopping.is_set)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(run, number) for number in range(3)]
        until(lambda: sum(topics.committed(name, name).values()) == 120, "all records are acknowledged", 90)
        stopping.set()
        counts = [each.result() for each in running]
    payments.charged_once(events)
    assert sum(each.success for each in counts) == 120 and all(each.success for each in counts)


def test_wrong_options_are_refused(payments: Payments, topics: Topics, begun: MakeTopic) -> None:
    charge, name = payments.offers("look-up"), begun()
    with pytest.raises(InvalidInput, match="EFFECT_OPTION"):
        consumer(charge, topics, name, workers=0)
    with pytest.raises(GuaranteeBroken, match="enable_auto_commit"):
        consumer(charge, topics, name, enable_auto_commit=True)


class Charging:
    """A topic with five charged orders, and runs of the group that charges."""

    def __init__(self, payments: Payments, topics: Topics, name: str) -> None:
        self.payments, self.topics, self.name = payments, topics, name
        self.charge = payments.offers("look-up")
        topics.write(name, [request(f"order-{number}") for number in range(5)])
        assert consume(self.charge, topics, name).success == 5

    def stopped(self, code: str) -> RunStopped:
        """The next run makes no call. Then do what its error says."""
        before = self.payments.service.requests.copy()
        with pytest.raises(RunStopped) as stopped:
            consume(self.charge, self.topics, self.name)
        assert stopped.value.code == code and self.payments.service.requests == before
        (*_, call) = re.findall(r"`(begin_group\([^`]*)`", stopped.value.remedy)
        eval(call, {"begin_group": begin_group})
        return stopped.value


@pytest.fixture
def charging(payments: Payments, topics: Topics, begun: MakeTopic) -> Charging:
    return Charging(payments, topics, begun())


def test_a_group_that_never_began_makes_no_call(payments: Payments, topics: Topics, topic: MakeTopic) -> None:
    name = topic()
    topics.write(name, [request("order-1")])
    with pytest.raises(RunStopped, match="GROUP_POSITION_MISSING"):
        consume(payments.offers("look-up"), topics, name)
    assert payments.states() == {}


def test_expired_offsets_stop_the_run_and_after_the_remedy_no_event_is_charged_again(charging: Charging) -> None:
    with admin(charging.topics.servers, timeout_s=30) as client:
        client.delete_groups([charging.name])
    charging.stopped("GROUP_POSITION_MISSING")
    assert consume(charging.charge, charging.topics, charging.name).duplicates == 5


def test_deleted_records_that_were_not_read_stop_the_run_with_their_range(charging: Charging) -> None:
    charging.topics.write(charging.name, [request(f"order-{number}") for number in range(5, 9)])
    with admin(charging.topics.servers, timeout_s=30) as client:
        client.delete_records({TopicPartition(charging.name, 0): 7})
    assert f"offsets 5 to 6 of {charging.name}[0] (2 in all)" in charging.stopped("GROUP_RECORDS_EXPIRED").found
    assert consume(charging.charge, charging.topics, charging.name).success == 2


def test_a_shorter_recreated_topic_stops_the_run(charging: Charging) -> None:
    name = charging.name
    with admin(charging.topics.servers, timeout_s=30) as client:
        (old,) = client.list_group_offsets(name)[name].values()
    charging.topics.recreate(name)
    charging.topics.write(name, [request("order-9")])
    charging.stopped("GROUP_POSITION_MISSING")
    with admin(charging.topics.servers, timeout_s=30) as client:  # as a member that has not noticed commits
        client.alter_group_offsets(name, {TopicPartition(name, 0): old})
    charging.stopped("GROUP_TOPIC_RECREATED")
    assert consume(charging.charge, charging.topics, name).success == 1


def test_a_new_partition_is_charged_from_its_first_record(charging: Charging) -> None:
    charging.topics.add_partition(charging.name, [request("order-9")])
    assert consume(charging.charge, charging.topics, charging.name).success == 1
    assert charging.topics.committed(charging.name, charging.name) == {0: 5, 1: 1}
