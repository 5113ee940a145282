"""The transactional producer: all or nothing, and a correct report of the outcome."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from ingest.delivery.kafka import ExactlyOnce, Grouped, OutcomeUnknown, ProducerFenced, TransactionAborted, TransactionalProducer
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import InvalidEnvironment, InvalidInput
from tests.kafka.topics import Interrupted, Make, Topics, struck, until


def send(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    with producer.transaction() as transaction:
        for value in values:
            transaction.send(topic, value)


def test_records_of_several_topics_and_partitions_appear_together(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    first, second = topic(3), topic(2)
    with make().transaction() as transaction:
        sent = [transaction.send((first, second)[number % 2], b"%d" % number, key=b"%d" % number) for number in range(40)]
        transaction.flush()
        assert len(topics.values(first, "read_uncommitted")) == 20 and topics.values(first) == topics.values(second) == []
    assert (len(topics.values(first)), len(topics.values(second))) == (20, 20)
    places = {(at.topic, at.partition, at.offset) for at in (future.get(timeout=0) for future in sent)}
    assert places == {(record.topic, record.partition, record.offset) for name in (first, second) for record in topics.read(name)}


def test_an_exception_aborts_the_transaction_and_the_producer_continues(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(), make()
    with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
        transaction.send(name, b"aborted")
        transaction._made.flush()
        raise ZeroDivisionError
    send(producer, name, b"committed")
    assert topics.values(name) == [b"committed"]
    assert topics.values(name, "read_uncommitted") == [b"aborted", b"committed"]


def test_a_key_keeps_its_partition_and_a_partition_its_order(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(4), make()
    with Grouped(producer, records=70) as out:
        for number in range(700):
            out.send(name, b"%d" % number, key=b"%d" % (number % 9))
    found = topics.read(name)
    partitions = {record.key: record.partition for record in found}
    assert all(record.partition == partitions[record.key] for record in found) and len(set(partitions.values())) > 1
    for partition in range(4):
        numbers = [int(record.value) for record in found if record.partition == partition]
        assert numbers == sorted(numbers)


def test_a_second_producer_with_the_same_id_fences_the_first(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name, first = topic(), make()
    with pytest.raises(ProducerFenced, match="PRODUCER_FENCED") as fenced, first.transaction() as transaction:
        transaction.send(name, b"of the first")
        transaction._made.flush()
        second = make()
        send(second, name, b"of the second")
        transaction.send(name, b"of the zombie")
    assert fenced.value.exit_code == 5 and not fenced.value.commit_asked
    with pytest.raises(InvalidInput, match="PRODUCER_CLOSED"):
        send(first, name, b"again")
    send(second, name, b"goes on")
    assert topics.values(name) == [b"of the second", b"goes on"], "the zombie did not affect its successor"


def test_a_producer_fenced_after_an_unanswered_commit_reports_that_it_may_be_committed(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, first = topic(), make(proxy.bootstrap_servers)
    lost = proxy.cut_reply(Api.END_TXN, times=1_000)

    def take_over() -> None:
        lost.wait(20)
        make()
        lost.release()

    taking = threading.Thread(target=take_over)
    taking.start()
    with pytest.raises(ProducerFenced, match="may have been done before") as fenced:
        send(first, name, b"1")
    taking.join(20)
    assert fenced.value.commit_asked
    until(lambda: topics.values(name) == [b"1"], "the first transaction was committed before the fence", 5)


def test_a_fenced_producer_does_not_request_its_id_again_and_fence_its_successor(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    """kafka-python 3.0.12 requests a higher epoch after a refused record, and the broker then aborts the successor's open transaction."""
    name, zombie = topic(), contextlib.ExitStack()
    first = make(proxy.bootstrap_servers)
    of_the_first = zombie.enter_context(first.transaction())
    of_the_first.send(name, b"of the first")
    of_the_first._made.flush()
    with make().transaction() as of_the_second:
        of_the_second.send(name, b"of the second")
        of_the_second._made.flush()
        asked = proxy.delay_reply(Api.INIT_PRODUCER_ID, 0, times=1_000)
        of_the_first.send(name, b"of the zombie")
        until(lambda: of_the_first._in_flight.met((Exception,)), "the zombie's record is refused")
        with contextlib.suppress(TimeoutError):  # it must not ask by itself, and not when it is closed
            asked.wait(1)
        with pytest.raises(ProducerFenced):
            zombie.close()
    assert asked.struck == 0
    assert topics.values(name) == [b"of the second"]


def test_only_a_stable_id_ends_the_open_transaction_of_a_killed_producer_at_once(
    make: Make, topics: Topics, topic: Callable[..., str]
) -> None:
    name = topic()
    dead = make()
    with contextlib.suppress(ProducerFenced), dead.transaction() as transaction:
        transaction.send(name, b"open")
        transaction._made.flush()
        with TransactionalProducer(ExactlyOnce(f"random-{uuid.uuid4()}"), topics.servers) as other:
            send(other, name, b"waiting")
        assert topics.values(name) == [], "all readers wait for the open transaction"
        make()
        until(lambda: topics.values(name) == [b"waiting"], "a producer with the same id ends it", 5)


def test_a_lost_reply_to_a_commit_means_an_unknown_outcome_and_a_new_producer(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    def threads() -> int:
        return sum(each.name != "kafka-proxy" for each in threading.enumerate())

    name = topic()
    producer = make(proxy.bootstrap_servers, request_timeout_ms=1_000, delivery_timeout_ms=2_000)
    send(producer, name, b"1")
    before, lost = threads(), proxy.drop_reply(Api.END_TXN)
    with pytest.raises(OutcomeUnknown, match="not answered") as unknown:
        send(producer, name, b"2")
    assert unknown.value.settled and lost.struck == 1 and unknown.value.code == "OUTCOME_UNKNOWN"
    until(lambda: threads() <= before, "no thread of the old producer is left", 10)
    send(producer, name, b"3")
    assert topics.values(name) == [b"1", b"2", b"3"], "the commit had succeeded, although its outcome was unknown"


def test_a_signal_during_a_commit_reports_that_the_outcome_is_unknown(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers)
    send(producer, name, b"1")
    with struck(proxy.hold_reply(Api.END_TXN)), pytest.raises(Interrupted) as raised:
        send(producer, name, b"2")
    assert "may be committed, or not" in raised.value.__notes__[0]
    send(producer, name, b"3")
    assert topics.values(name) == [b"1", b"2", b"3"], "the second transaction was committed"


def test_an_exception_from_the_listener_after_the_commit_undoes_nothing(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(), make()
    first = producer._made

    def on_step(step: str) -> None:
        if step == "committed":
            raise TimeoutError("of the caller's own")

    with pytest.raises(TimeoutError, match="of the caller's own"), producer.transaction(on_step) as transaction:
        transaction.send(name, b"1")
    send(producer, name, b"2")
    assert topics.values(name) == [b"1", b"2"] and producer._made is first


def test_a_commit_that_never_arrived_has_an_unknown_outcome_and_leaves_nothing(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers, commit_within_s=2)
    send(producer, name, b"1")
    cut = proxy.cut_request(Api.END_TXN, times=1_000)
    with pytest.raises(OutcomeUnknown) as unknown:
        send(producer, name, b"2")
    cut.release()
    assert unknown.value.settled
    send(producer, name, b"3")
    assert topics.values(name) == [b"1", b"3"]


def test_without_a_replacement_producer_the_error_says_that_it_may_still_be_committed(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers, commit_within_s=1, bootstrap_timeout_ms=500, max_block_ms=1_000)
    send(producer, name, b"1")
    with pytest.raises(OutcomeUnknown, match="may still be committed") as unknown, producer.transaction() as transaction:
        transaction.send(name, b"2")
        transaction._made.flush()
        cut = proxy.cut_request(Api.END_TXN, times=1_000)
        proxy.drop_reply(Api.INIT_PRODUCER_ID, times=1_000)
    assert not unknown.value.settled
    for fault in (cut, *proxy._faults):
        fault.release()
    send(producer, name, b"3")
    assert topics.values(name) == [b"1", b"3"]


def test_a_record_that_could_not_be_delivered_aborts_the_transaction(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    """kafka-python 3.0.12 reports such a commit as successful: it loses this record, or all of them."""
    name = topic()
    producer = make(proxy.bootstrap_servers, request_timeout_ms=500, delivery_timeout_ms=1_000)
    with pytest.raises(TransactionAborted, match="not acknowledged") as aborted, producer.transaction() as transaction:
        transaction.send(name, b"1")
        transaction._made.flush()
        cut = proxy.cut_request(Api.PRODUCE, times=1_000)
        transaction.send(name, b"2")
        until(lambda: bool(transaction._in_flight.met((Exception,))), "the record has failed")
        cut.release()
    assert (aborted.value.code, aborted.value.exit_code) == ("TRANSACTION_ABORTED", 5)
    send(producer, name, b"3")
    assert topics.values(name) == [b"3"]


def test_a_late_record_of_an_aborted_transaction_is_not_in_the_next_transaction(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    """The caller ends the transaction with its own exception. An abort alone does not change the producer's epoch."""
    name, producer = topic(), make(proxy.bootstrap_servers, request_timeout_ms=500, delivery_timeout_ms=600)
    stuck, again = proxy.keep_request(Api.PRODUCE), proxy.cut_request(Api.PRODUCE, times=1_000)
    with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
        transaction.send(name, b"aborted")
        until(lambda: transaction._in_flight.met((Exception,)), "the record has failed", 8)
        again.release()
        raise ZeroDivisionError
    with producer.transaction() as transaction:
        held = proxy.hold_reply(Api.ADD_PARTITIONS_TO_TXN)
        transaction.send(name, b"of the next one")
        held.wait(20)
        proxy.deliver(stuck)
        held.release()
    assert topics.values(name, "read_uncommitted") == [b"of the next one"]


def test_an_unanswered_abort_times_out_and_the_producer_is_replaced(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers, commit_within_s=1)
    send(producer, name, b"1")
    first = producer._made
    with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
        transaction.send(name, b"2")
        transaction.flush()
        cut = proxy.cut_request(Api.END_TXN, times=1_000)
        raise ZeroDivisionError
    cut.release()
    assert cut.struck and producer._made is not first
    send(producer, name, b"3")
    assert topics.values(name) == [b"1", b"3"]


@pytest.mark.slow
def test_the_broker_aborts_a_transaction_after_its_timeout(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(), make(timeout_ms=1_000)
    with pytest.raises(ProducerFenced, match="older than its timeout") as ended, producer.transaction() as transaction:
        transaction.send(name, b"1")
        transaction._made.flush()
        began = time.monotonic()
        # The broker checks every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
        until(lambda: topics.stable(name), "the broker has ended the transaction", 20)
        assert time.monotonic() - began > 0.5
        transaction.send(name, b"2")
    assert ended.value.timed_out
    assert topics.values(name) == []


def test_a_fast_caller_waits_for_a_slow_broker(make: Make, proxy: Proxy, topic: Callable[..., str]) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers)
    producer._in_flight._bytes_max = 100_000
    with producer.transaction() as transaction:
        transaction.send(name, b"first")
        transaction._made.flush()
        late = proxy.delay_reply(Api.PRODUCE, 0.5, times=1)
        began = time.monotonic()
        for _ in range(20):
            transaction.send(name, bytes(10_000))
        assert late.struck == 1 and time.monotonic() - began >= 0.4, "the caller waited for acknowledgements"


def test_without_a_broker_it_says_so() -> None:
    with pytest.raises(InvalidEnvironment, match="BROKER_UNREACHABLE"):
        TransactionalProducer(ExactlyOnce("x"), "127.0.0.1:1", bootstrap_timeout_ms=500)


def test_a_topic_that_does_not_exist_is_named(make: Make) -> None:
    with pytest.raises(InvalidInput, match=r"TOPIC_UNKNOWN.*no-such-topic"):
        make(max_block_ms=1_000).partitions("no-such-topic")


def test_only_one_transaction_is_open_at_a_time(make: Make) -> None:
    producer = make()
    with pytest.raises(InvalidInput, match="TRANSACTION_OPEN"), producer.transaction(), producer.transaction():
        pass
