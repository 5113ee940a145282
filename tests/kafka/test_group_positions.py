"""Where a group reads on: it begins with a call, and afterwards a missing or impossible position is an error that names the way out."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, RebalanceInProgressError, TopicAuthorizationFailedError

from ingest.delivery.kafka import AtLeastOnce, AtMostOnce, Consumer, ExactlyOnce, Outgoing, Transform, begin_group
from ingest.delivery.kafka.buffer import Buffer
from ingest.delivery.kafka.member import Member
from ingest.kafka.kafka_options import KafkaOptions
from ingest.lab.broker.broker_probe import admin
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import InvalidInput, Refused, RunStopped
from tests.kafka.topics import QUICK, Make, Topics, until

Topic: TypeAlias = Callable[..., str]
Group: TypeAlias = Callable[[str], "Working"]


class Working:
    """Runs of a consumer whose group is named after its topic."""

    mode: AtLeastOnce | AtMostOnce = AtLeastOnce()

    def __init__(self, topics: Topics, name: str, sink: str = "") -> None:
        self.topics, self.name, self.sink = topics, name, sink

    def run(self, count: int, idle_s: float = 20) -> list[bytes]:
        """Work until `count` records are done, or none arrives for `idle_s`; return what was done."""
        done: list[bytes] = []
        with Consumer(self.mode, self.name, self.name, self.topics.servers, **QUICK) as consumer:
            consumer.run(lambda record: done.append(record.value), stop=lambda: len(done) >= count, idle_s=idle_s)
        return done

    def stopped(self, code: str) -> RunStopped:
        """Run; it has to stop with this error, before it has done anything."""
        with pytest.raises(RunStopped) as stopped:
            assert self.run(1) == [], "nothing is done with a wrong position"
        assert stopped.value.code == code
        return stopped.value


class WorkingAtMostOnce(Working):
    mode = AtMostOnce()


class Transforming(Working):
    """The same with a transform: what was done is what its transactions have written."""

    def run(self, count: int, idle_s: float = 20) -> list[bytes]:
        mode, options = ExactlyOnce(f"t-{self.name}"), dict(QUICK)
        before = len(self.topics.values(self.sink))
        with Transform(self.name, self._copy, self.sink, mode, self.name, self.topics.servers, consumer_options=options) as instance:
            instance.run(stop=lambda: instance.counts.records >= count, idle_s=idle_s)
        return self.topics.values(self.sink)[before:]

    def _copy(self, record: Any) -> Iterator[Outgoing]:
        yield Outgoing(self.sink, record.value)


READERS: dict[str, type[Working]] = {"consumer": Working, "at most once": WorkingAtMostOnce, "transform": Transforming}


@pytest.fixture(params=["consumer", "transform"])
def group(request: pytest.FixtureRequest, topics: Topics, topic: Topic) -> Group:
    """`group(topic)`: a group of that name."""
    return lambda name: READERS[request.param](topics, name, topic())


def followed(error: RunStopped | Refused, number: int = 0) -> dict[int, int]:
    """Do what the error says, with its first (or another) call."""
    calls = re.findall(r"`(begin_group\([^`]*)`", error.remedy)
    made: dict[int, int] = eval(calls[number], {"begin_group": begin_group})
    return made


def of_topic(name: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(name, number) for number in partitions]


def offsets(topics: Topics, name: str) -> dict[int, int]:
    """The committed offsets of the group; nothing for a partition without one."""
    with admin(topics.servers, timeout_s=30) as client:
        return {place.partition: found.offset for place, found in client.list_group_offsets(name)[name].items()}


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize("kind", READERS)
def test_a_group_that_never_began_says_how_it_begins(topics: Topics, full: Topic, topic: Topic, kind: str) -> None:
    group = READERS[kind](topics, full(5, group=False), topic())
    error = group.stopped("GROUP_POSITION_MISSING")
    assert "partition 0 (0 to 5)" in error.found
    assert followed(error) == {0: 0}
    assert group.run(5) == numbers(0, 5)


def test_a_beginning_at_the_end_reads_what_becomes_visible_afterwards(topics: Topics, full: Topic, make: Make) -> None:
    name = full(5, group=False)
    producer = make()
    with producer.transaction() as transaction:
        transaction.send(name, b"open when it began")
        transaction.flush()
        assert begin_group(name, name, topics.servers, at="latest") == {0: 5}
    topics.write(name, [b"written afterwards"])
    assert Working(topics, name).run(2) == [b"open when it began", b"written afterwards"]


def test_a_group_begins_once(topics: Topics, full: Topic) -> None:
    name = full(5, 2)
    assert len(Working(topics, name).run(5)) == 5
    for at in ("earliest", "latest"):
        with pytest.raises(Refused, match=r"next offsets are \{0: \d, 1: \d\}") as refused:
            begin_group(name, name, topics.servers, at=at)
        assert refused.value.code == "GROUP_BEGUN"
    assert followed(refused.value) == topics.committed(name, name), "the call that it shows changes nothing as it stands"
    assert begin_group(name, name, topics.servers, at={0: 0}) == {0: 0}, "a person can move it"


def test_a_group_with_members_is_not_moved(topics: Topics, full: Topic) -> None:
    name, stop = full(5), threading.Event()
    with Consumer(AtLeastOnce(), name, name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: stop.set(), stop=stop.is_set)
        with pytest.raises(Refused) as refused:
            begin_group(name, name, topics.servers, at={0: 0})
    assert refused.value.code == "GROUP_ACTIVE"


@pytest.mark.parametrize(
    ("at", "match"),
    [
        ("first", "'first'"),
        ({}, "{}"),
        ({0: 6, 1: 0}, r"6 of .*\[0\].*0 \(its first record\) to"),
        ({0: -1, 1: 0}, "-1 of"),
        ({0: "0", 1: 0}, "'0' of"),
        ({0: 0, 2: 0}, "partition 2 of"),
        ({0: 0}, r"no position in some .*partition 1 \(0 to"),
    ],
)
def test_wrong_offsets_are_refused_and_nothing_is_committed(topics: Topics, full: Topic, at: Any, match: str) -> None:
    name = full(5, 2, group=False)
    with pytest.raises(InvalidInput, match=match) as wrong:
        begin_group(name, name, topics.servers, at=at)
    assert wrong.value.code == "GROUP_OFFSETS"
    begin_group(name, name, topics.servers)  # it would be refused if the group had begun


def test_expired_or_deleted_offsets_stop_the_start_and_nothing_is_done_again(topics: Topics, full: Topic, group: Group) -> None:
    """Kafka's own expiry deletes the group in the same way."""
    name = full(5)
    members = group(name)
    assert members.run(5) == numbers(0, 5)
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_groups([name])
    topics.write(name, numbers(5, 8))
    error = members.stopped("GROUP_POSITION_MISSING")
    assert "expired" in error.found and "partition 0 (0 to" in error.found
    begin_group(name, name, topics.servers, at={0: 5})
    assert members.run(3) == numbers(5, 8)


def test_a_single_lost_offset_is_no_new_partition(topics: Topics, full: Topic) -> None:
    """Such as one that expired because its partition was idle while the group did not subscribe to the topic."""
    name = full(20, 2)
    members = Working(topics, name)
    assert len(members.run(20)) == 20
    left = topics.committed(name, name)[1]
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_group_offsets(name, of_topic(name, 1))
    error = members.stopped("GROUP_POSITION_MISSING")
    assert f"none in partition 1 (0 to {left})" in error.found
    assert followed(error) == {1: 0}
    assert len(members.run(left)) == left


def test_deleted_records_that_were_not_read_stop_the_start_with_their_number(topics: Topics, full: Topic, group: Group) -> None:
    name = full(5)
    members = group(name)
    assert members.run(5) == numbers(0, 5)
    topics.write(name, numbers(5, 20))
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_records({TopicPartition(name, 0): 12})
    error = members.stopped("GROUP_RECORDS_EXPIRED")
    assert f"offsets 5 to 11 of {name}[0] (7 in all)" in error.found
    assert followed(error) == {0: 12}
    assert members.run(8) == numbers(12, 20)


def test_all_partitions_with_deleted_records_are_named_at_once(topics: Topics, full: Topic) -> None:
    name = full(40, 2)
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_records(dict.fromkeys(of_topic(name, 0, 1), 3))
    error = Working(topics, name).stopped("GROUP_RECORDS_EXPIRED")
    assert f"0 to 2 of {name}[0], 0 to 2 of {name}[1] (6 in all)" in error.found
    assert followed(error) == {0: 3, 1: 3}


def test_an_offset_behind_the_end_stops_the_start(topics: Topics, full: Topic) -> None:
    name = full(5)
    with admin(topics.servers, timeout_s=30) as client:
        client.alter_group_offsets(name, {TopicPartition(name, 0): OffsetAndMetadata(9, "", -1)})
    members = Working(topics, name)
    error = members.stopped("GROUP_RECORDS_LOST")
    assert "before the offset 9, and ends at 5 now" in error.found
    assert followed(error) == {0: 5}
    topics.write(name, [b"new"])
    assert members.run(1) == [b"new"]


def test_a_recreated_topic_has_no_positions_of_the_group(topics: Topics, full: Topic, group: Group) -> None:
    name = full(5)
    members = group(name)
    assert members.run(5) == numbers(0, 5)
    topics.recreate(name)
    topics.write(name, [b"a", b"b"])
    error = members.stopped("GROUP_POSITION_MISSING")
    assert "partition 0 (0 to 2)" in error.found
    assert followed(error) == {0: 0}
    assert members.run(2) == [b"a", b"b"]


def test_offsets_of_a_recreated_topic_stop_the_start(topics: Topics, full: Topic) -> None:
    """A member that did not notice can commit them after the deletion."""
    name = full(5)
    with admin(topics.servers, timeout_s=30) as client:
        (old,) = client.list_group_offsets(name)[name].values()
    topics.recreate(name)
    topics.write(name, numbers(0, 9))
    with admin(topics.servers, timeout_s=30) as client:
        client.alter_group_offsets(name, {TopicPartition(name, 0): old._replace(offset=5)})
    members = Working(topics, name)
    error = members.stopped("GROUP_TOPIC_RECREATED")
    assert followed(error) == {0: 0}
    assert members.run(9) == numbers(0, 9)


@pytest.mark.parametrize("longer", [True, False])
def test_a_topic_that_is_recreated_during_the_run_stops_it(topics: Topics, full: Topic, longer: bool) -> None:
    name, done = full(5), list[bytes]()
    with Consumer(AtLeastOnce(), name, name, topics.servers, **QUICK) as consumer:
        consumer.run(lambda record: done.append(record.value), stop=lambda: len(done) == 5)
        topics.recreate(name)
        topics.write(name, numbers(0, 9 if longer else 3))
        with pytest.raises(RunStopped) as stopped:
            consumer.run(lambda record: done.append(record.value), idle_s=30)
    assert stopped.value.code == "GROUP_TOPIC_RECREATED"
    assert done == numbers(0, 5), "no record of the new topic is processed before a person decides"


def test_records_that_were_read_are_done_before_deleted_ones_stop_the_run(topics: Topics, full: Topic) -> None:
    """So that the range in the error is what is lost, and no more."""
    name, done = full(30), list[bytes]()
    few: dict[str, Any] = {"max_poll_records": 5, "commit_records": 2, "max_partition_fetch_bytes": 1}  # one batch of the log per fetch

    def work(record: Any) -> None:
        if not done:
            topics.write(name, numbers(30, 60))
            with admin(topics.servers, timeout_s=30) as client:
                client.delete_records({TopicPartition(name, 0): 50})
        done.append(record.value)

    with Consumer(AtLeastOnce(), name, name, topics.servers, **few, **QUICK) as consumer, pytest.raises(RunStopped) as stopped:
        consumer.run(work, idle_s=20)
    first = len(done)
    assert done == numbers(0, first) and 0 < first < 50
    assert f"offsets {first} to 49 of" in stopped.value.found
    assert topics.committed(name, name) == {0: first}


def test_a_new_partition_is_read_from_its_first_record(topics: Topics, full: Topic, group: Group) -> None:
    """Also by a group that began at the end."""
    name = full(5, group=False)
    begin_group(name, name, topics.servers, at="latest")
    topics.add_partition(name, [b"added"])
    assert group(name).run(1) == [b"added"]
    assert offsets(topics, name) == {0: 5, 1: 1}


def test_a_partition_that_is_added_during_the_run_is_read_and_its_beginning_is_committed_before_its_first_record(
    topics: Topics, full: Topic
) -> None:
    name, begun = full(5), list[dict[int, int]]()
    with Consumer(AtLeastOnce(), name, name, topics.servers, metadata_max_age_ms=500, **QUICK) as consumer:
        consumer.run(lambda record: None, stop=lambda: consumer.counts.worked == 5)
        topics.add_partition(name, [b"added"])
        consumer.run(lambda record: begun.append(offsets(topics, name)), stop=lambda: bool(begun), idle_s=30)
    assert begun == [{0: 5, 1: 0}]
    assert offsets(topics, name) == {0: 5, 1: 1}


@pytest.mark.parametrize(
    ("error", "within_s", "attempts"),
    [
        pytest.param(TopicAuthorizationFailedError({"orders"}), 60.0, 1, id="useless"),
        pytest.param(KafkaTimeoutError(), 0.5, None, id="retriable"),
        pytest.param(RebalanceInProgressError(), 0.5, None, id="rebalance"),
    ],
)
def test_the_beginning_of_a_new_partition_is_committed_again_for_a_time_only_and_only_if_that_can_help(
    topics: Topics, full: Topic, monkeypatch: pytest.MonkeyPatch, error: KafkaError, within_s: float, attempts: int | None
) -> None:
    name = full(5)
    topics.add_partition(name, [b"added"])
    monkeypatch.setattr("ingest.delivery.kafka.group_positions._COMMITTED_WITHIN_S", within_s)
    member = Member(KafkaOptions(topics.servers), [name], AtLeastOnce().consumer_options(name, **QUICK), buffer=Buffer())
    commit, failed = member._consumer.commit, list[float]()

    def fails(*_: object, **__: object) -> None:
        failed.append(time.monotonic())
        raise error

    member._consumer.commit = fails
    try:
        with pytest.raises(type(error)):
            until(lambda: bool(member.gather(10, 0, lambda: False)) and False, "the error", 30)
        assert len(failed) == attempts if attempts else failed[-1] - failed[0] > within_s
        member._consumer.commit = commit
        until(lambda: b"added" in [record.value for record in member.gather(10, 0, lambda: False)], "a later poll begins it")
    finally:
        member.close()


def test_a_new_partition_whose_first_records_are_gone_stops_the_start(topics: Topics, full: Topic) -> None:
    name = full(5)
    topics.add_partition(name, numbers(0, 4))
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_records({TopicPartition(name, 1): 3})
    members = Working(topics, name)
    error = members.stopped("GROUP_POSITION_MISSING")
    assert "none in partition 1 (3 to 4)" in error.found
    assert followed(error) == {1: 3}
    assert sorted(members.run(6)) == sorted([*numbers(0, 5), b"3"])


def test_a_member_that_did_not_begin_the_new_partition_learns_at_its_next_start_that_it_has_begun(topics: Topics, full: Topic) -> None:
    name = full(5)
    topics.add_partition(name)
    with admin(topics.servers, timeout_s=30) as client:
        (of_one,) = client.list_group_offsets(name)[name].values()
        client.alter_group_offsets(name, {TopicPartition(name, 1): of_one})
    assert len(Working(topics, name).run(5)) == 5
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_group_offsets(name, of_topic(name, 1))
    assert "none in partition 1 (0 to 0)" in Working(topics, name).stopped("GROUP_POSITION_MISSING").found


def test_a_lost_offset_of_a_partition_that_was_new_once_is_noticed(topics: Topics, full: Topic) -> None:
    name = full(5)
    topics.add_partition(name, [b"added"])
    assert len(Working(topics, name).run(6)) == 6
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_group_offsets(name, of_topic(name, 1))
    assert "none in partition 1 (0 to 1)" in Working(topics, name).stopped("GROUP_POSITION_MISSING").found


def test_a_group_of_an_earlier_version_reads_on_and_its_next_lost_offset_is_noticed(topics: Topics, full: Topic) -> None:
    """It committed no offset in a partition without records, and no mark."""
    name = full(5, group=False)
    topics.add_partition(name)
    with admin(topics.servers, timeout_s=30) as client:
        client.alter_group_offsets(name, {TopicPartition(name, 0): OffsetAndMetadata(3, "", -1)})
    members = Working(topics, name)
    assert members.run(2) == numbers(3, 5)
    assert offsets(topics, name) == {0: 5, 1: 0}
    with admin(topics.servers, timeout_s=30) as client:
        client.delete_group_offsets(name, of_topic(name, 1))
    assert "none in partition 1 (0 to 0)" in members.stopped("GROUP_POSITION_MISSING").found


def test_a_late_answer_from_before_a_commit_is_not_taken_for_the_position(topics: Topics, full: Topic, proxy: Proxy) -> None:
    """kafka-python 3.0.12 gives it to whoever asks for the same partitions next."""
    place = TopicPartition(full(5), 0)
    options = AtLeastOnce().consumer_options(place.topic, **QUICK)
    held = proxy.hold_reply(Api.OFFSET_FETCH)
    member = Member(KafkaOptions(proxy.bootstrap_servers), [place.topic], options, buffer=Buffer())
    try:
        until(lambda: member.gather(1, 0, lambda: False) == [] and held.struck > 0, "the position is asked for")
        assert member.waits
        held.release()
        member._consumer.commit({place: OffsetAndMetadata(3, "", -1)})  # as another owner does meanwhile
        member.forget()
        found: list[Any] = []

        def arrived() -> bool:
            found.extend(member.gather(1, 0, lambda: False))
            return bool(found)

        until(arrived, "a record")
        assert found[0].offset == 3
    finally:
        held.release()
        member.close()
