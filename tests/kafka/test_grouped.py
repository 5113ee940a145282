"""Groups of records, one transaction each: committed by count or time, repeated after an abort, handed back if the outcome is unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from ingest.delivery.kafka import Grouped, OutcomeUnknown
from ingest.lab.proxy import Api, Proxy
from ingest.runtime.errors import InvalidInput
from tests.kafka.topics import Interrupted, Make, Topics, struck, until


def test_a_group_is_committed_by_count_by_time_and_at_the_end(make: Make, topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    with Grouped(make(), records=10, time_ms=200) as out:
        for number in range(25):
            out.send(name, b"%d" % number)
        assert (out.transactions, out.committed) == (2, 20)
        until(lambda: out.committed == 25, "the rest is committed after time_ms", 5)
        out.send(name, b"last")
    assert (out.transactions, out.committed) == (4, 26)
    assert topics.values(name) == [b"%d" % number for number in range(25)] + [b"last"]


def test_a_group_of_large_records_is_committed_before_it_fills_the_memory(
    make: Make, topics: Topics, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.delivery.kafka.grouped._GROUP_BYTES_MAX", 1_000)
    name = topic()
    with Grouped(make(), time_ms=600_000) as out:
        for number in range(25):
            out.send(name, b"%0200d" % number, key=b"k" * 50)
        assert (out.transactions, out.committed) == (6, 24)
    assert topics.values(name) == [b"%0200d" % number for number in range(25)]


def test_text_instead_of_bytes_is_refused_at_once_and_affects_no_other_record(
    make: Make, topics: Topics, topic: Callable[..., str]
) -> None:
    name, text = topic(), cast(Any, "text")
    with Grouped(make(), time_ms=600_000) as out:
        out.send(name, b"1", key=b"k")
        for wrong in ({"value": text}, {"value": b"2", "key": text}):
            with pytest.raises(TypeError, match="is str; expected bytes"):
                out.send(name, **wrong)
        out.send(name, None, key=b"k")
    assert topics.values(name) == [b"1", None] and out.lost == ()


def test_an_aborted_group_is_sent_again(make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers, request_timeout_ms=400, delivery_timeout_ms=500)
    first = producer._made
    with Grouped(producer, records=2) as out:
        cut = proxy.cut_request(Api.PRODUCE, times=1_000)

        def restore_network() -> None:
            until(lambda: producer._made is not first, "the first attempt is aborted")
            cut.release()

        restoring = threading.Thread(target=restore_network)
        restoring.start()
        out.send(name, b"1")
        out.send(name, b"2")
        restoring.join(10)
    assert (out.transactions, out.committed) == (1, 2)
    assert topics.values(name) == [b"1", b"2"]


def test_a_group_with_an_unknown_outcome_is_handed_back(make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers, request_timeout_ms=1_000, delivery_timeout_ms=2_000)
    with Grouped(producer, records=2) as out:
        proxy.drop_reply(Api.END_TXN)
        out.send(name, b"1")
        with pytest.raises(OutcomeUnknown):
            out.send(name, b"2")
        assert [one.value for one in out.lost] == [b"1", b"2"] and out.committed == 0
        out.send(name, b"3")
    assert topics.values(name) == [b"1", b"2", b"3"]


def test_every_record_is_either_committed_or_handed_back(make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]) -> None:
    """The timed commit fails, and sending the next record raises its error. That record was never sent, so it is handed back as well."""
    name, producer = topic(), make(proxy.bootstrap_servers, request_timeout_ms=1_000, delivery_timeout_ms=2_000)
    with pytest.raises(ZeroDivisionError), Grouped(producer, records=100, time_ms=20) as out:
        proxy.drop_reply(Api.END_TXN)
        out.send(name, b"1")
        until(lambda: out._error is not None, "the timed commit has failed without a reply", 10)
        with pytest.raises(OutcomeUnknown) as unknown:
            out.send(name, b"2")
        assert (unknown.value.code, unknown.value.exit_code) == ("OUTCOME_UNKNOWN", 5)
        assert [one.value for one in out.lost] == [b"1", b"2"]
        with out._changed:  # before the timer can commit it
            out.send(name, b"3")
            raise ZeroDivisionError
    assert [one.value for one in out.lost] == [b"3"]
    assert topics.values(name) == [b"1"]


def test_a_signal_during_the_last_commit_hands_back_its_records_and_leaves_no_thread(
    make: Make, proxy: Proxy, topics: Topics, topic: Callable[..., str]
) -> None:
    name, producer = topic(), make(proxy.bootstrap_servers)
    with struck(proxy.hold_reply(Api.END_TXN)), pytest.raises(Interrupted), Grouped(producer, time_ms=600_000) as out:
        out.send(name, b"1")
    assert [one.value for one in out.lost] == [b"1"] and not out._clock.is_alive()
    with pytest.raises(InvalidInput, match="GROUP_ENDED"):
        out.send(name, b"2")
