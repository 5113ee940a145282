"""One row per event id (I3), in a batch and across batches, for ids of every type. The least (partition, offset) wins."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date

import pytest
from deltalake import DeltaTable as Reader

from ingest.contract import event_id
from ingest.delivery.kafka import AtLeastOnce, Producer
from ingest.delivery.trace.lake_trail import lake_trail
from ingest.lab.proxy import Api, Proxy
from ingest.recovery.seek_offsets import Aim, Seeking
from tests.integration.desk import Desk
from tests.integration.lane import Lane, order

pytestmark = pytest.mark.integration

MakeDesk = Callable[..., Desk]
MakeLane = Callable[..., Lane]


def test_the_copy_with_the_least_position_in_a_batch_wins_and_later_batches_add_none(desk: MakeDesk) -> None:
    """I3, I4"""
    one = desk({"n": "INT"}, partitions=3)
    records = [(2, order("a", n=1), None), (1, order("a", n=2), None), (1, order("a", n=3), None), (2, order("b", n=4), None)]
    first = one.process(one.frame_of([*records, (0, order("b", n=5), None), (2, order("c", n=6), None)]))
    assert (first.records_read, first.inserted, first.duplicate, first.quarantined) == (6, 3, 0, 3), "their payloads differ"
    expected = [("b", 5, 0, 0), ("a", 2, 1, 0), ("c", 6, 2, 2)]
    assert one.rows("id", "n", "_partition", "_offset") == expected
    second = one.process(one.frame_of([(0, order("a", n=7), None), (0, order("c", n=8), None), (0, order("a", n=9), None)]))
    assert (second.inserted, second.duplicate, second.quarantined) == (0, 2, 1), "conflicts are detected within the batch only"
    assert one.rows("id", "n", "_partition", "_offset") == expected
    first_batch, second_batch = [(1, 1, 0, 0, 0, 0), (2, 1, 0, 0, 1, 0), (3, 1, 0, 0, 2, 0)], [(3, 0, 2, 0, 1, 0), *[(0,) * 6] * 2]
    assert one.accounts() == [*first_batch, *second_batch], "of each partition"


@pytest.mark.slow
def test_a_faulty_copy_does_not_win_over_a_good_one(desk: MakeDesk) -> None:
    """I3, I5: the first good copy becomes the row. The faulty copy is in quarantine with the same event id."""
    one = desk({"n": "INT"})
    report = one.batch(order("a", n="x"), order("a", n=1), order("a", n=2))
    assert (report.inserted, report.duplicate, report.quarantined) == (1, 0, 2)
    assert one.rows("id", "n") == [("a", 1)]
    assert [(row["event_id"], row["reason_code"]) for row in one.quarantine()] == [("a", "wrong_type"), ("a", "conflicting_duplicate")]
    one.table.epoch.ledger.append()
    row, *copies = lake_trail(one.contract, one.places, "a")
    assert (row.place, row.details) == ("lake", {"partition": 0, "offset": 1, "epoch": 1, "batch": 2, "version": one.log().newest()})
    assert [(each.place, each.details["offset"], each.details["reason_code"]) for each in copies] == [
        ("quarantine", 0, "wrong_type"),
        ("quarantine", 2, "conflicting_duplicate"),
    ]
    assert list(lake_trail(one.contract, one.places, "b's")) == []


@pytest.mark.slow
def test_text_ids_that_differ_in_case_blanks_or_unicode_form_are_different_rows(desk: MakeDesk) -> None:
    """I3: the MERGE, its bounds and the choice of winners all compare byte by byte."""
    one = desk()
    names = ["Café", "Cafe\u0301", "café", "CAFÉ", "Café ", " Café", "a", "a ", "A", "", "\u0000", "ß", "ss", "\U0001f600", "~", "ﬁ", "fi"]
    names += ["a\n", "a\r\n", "\\", "'"]
    one.batch(*[order(name) for name in names[::2]])
    one.batch(*[order(name) for name in names])
    report = one.batch(*[order(name) for name in reversed(names)])
    assert (report.inserted, report.duplicate) == (0, len(names))
    assert sorted(name for (name,) in one.rows("id")) == sorted(names)


def test_ids_of_several_columns_are_equal_only_if_every_column_is(desk: MakeDesk) -> None:
    """I3: including BIGINT beyond a double's precision, DECIMAL in any notation, DATE, TIMESTAMP in any zone, and BINARY."""
    columns = {"b": "BIGINT!", "m": "DECIMAL(38,2)!", "d": "DATE!", "t": "TIMESTAMP!", "y": "BINARY!"}
    one = desk(columns, event_id=("b", "m", "d", "t", "y"))

    def event(b: int = 2**53, m: str = "1.5", d: str = "2024-05-01", t: str = "2024-05-01T10:00:00Z", y: str = "AA==") -> str:
        return json.dumps({"b": b, "m": m, "d": d, "t": t, "y": y})

    different = [event(), event(b=2**53 + 1), event(m="1.51"), event(d="0001-01-01"), event(d="9999-12-31"), event(y="AAA="), event(y="")]
    different += [event(t="2024-05-01T10:00:00.000001Z"), event(t="0001-01-01T00:00:00Z"), event(t="9999-12-31T23:59:59.999999Z")]
    different += [event(m="-" + "9" * 36 + ".99"), event(b=-(2**63)), event(b=2**63 - 1)]
    same = [event(m="1.50"), event(m="1.500"), event(t="2024-05-01T12:00:00+02:00"), event(t="2024-05-01T10:00:00.000000000Z")]
    first = one.batch(*different[:6], *same)
    assert (first.inserted, first.duplicate, first.quarantined) == (6, 4, 0)
    second = one.batch(*different, *same)
    assert (second.inserted, second.duplicate, second.quarantined) == (len(different) - 6, 6 + 4, 0)
    assert one.target().count() == len(different)
    assert one.target().where(f"d = DATE'{date(9999, 12, 31)}'").count() == 1


@pytest.mark.slow
def test_an_id_with_a_date_or_time_out_of_range_is_quarantined_and_stops_nothing(desk: MakeDesk) -> None:
    """I5: poison must not stop the stream. Not every reader can compare the years 0 and 10000."""
    one = desk({"d": "DATE!", "t": "TIMESTAMP!"}, event_id=("d", "t"))
    good = '{"d":"2024-05-01","t":"2024-05-01T10:00:00Z"}'
    bad = ['{"d":"0000-01-01","t":"2024-05-01T10:00:00Z"}', '{"d":"2024-05-01","t":"9999-12-31T23:59:59-18:00"}']
    report = one.batch(good, *bad)
    assert (report.inserted, report.quarantined) == (1, 2)


@pytest.mark.slow
def test_by_key_a_retry_is_the_same_event(desk: MakeDesk) -> None:
    """I3: a retry with the same key is the same event."""
    by_key = desk(event_id="key")
    report = by_key.process(by_key.frame_of([(0, b"1", b"k"), (0, b"2", b"k"), (0, b"3", b"K"), (0, b"4", None)]))
    assert (report.inserted, report.duplicate, report.quarantined) == (2, 0, 2)
    assert by_key.rows("_event_id", "value") == [("k", b"1"), ("K", b"3")]


def test_an_id_that_is_no_text_is_in_quarantine_by_its_bytes_alone(desk: MakeDesk) -> None:
    """I5: `event_id` is a STRING. With other bytes in it, deltalake could read no record of the file."""
    by_key = desk({"n": "INT"}, event_id="key")
    keys = [b"\xff", b"k\xc3", b"\xed\xa0\x80", "é".encode()]
    by_key.process(by_key.frame_of([(0, value, key) for key in keys for value in ('{"n":1}', '{"n":"x"}', "{")]))
    found = Reader(by_key.places.quarantine).to_pyarrow_table(columns=["key", "event_id", "offset"]).sort_by("offset").to_pylist()
    read = [(row["key"], row["event_id"]) for row in found]
    assert read == [*[(key, None) for key in keys[:3] for _ in range(3)], *[("é".encode(), "é")] * 2]


@pytest.mark.parametrize("ids", [("y",), ("y", "n")], ids=["one column", "two columns"])
def test_a_binary_id_that_is_no_text_is_in_quarantine_by_its_bytes_alone(desk: MakeDesk, ids: tuple[str, ...]) -> None:
    """I5"""
    by_bytes = desk({"y": "BINARY!", "n": "INT!", "s": "STRING"}, event_id=ids)
    by_bytes.batch('{"y":"/w==","n":1,"s":5}', '{"y":"YQ==","n":1,"s":5}')
    found = Reader(by_bytes.places.quarantine).to_pyarrow_table(columns=["event_id", "offset"]).sort_by("offset").to_pylist()
    assert [row["event_id"] for row in found] == [None, "a" if len(ids) == 1 else '["a","1"]']


@pytest.mark.slow
def test_by_position_a_retry_is_another_event_and_a_re_read_is_not(desk: MakeDesk) -> None:
    """I3"""
    one = desk(event_id="position")
    frame = one.frame_of([(0, b"same", b"k"), (0, b"same", b"k")])
    assert one.process(frame).inserted == 2
    one.table = one.open(Seeking(Aim("earliest"), accept_gap=False, reason="--to earliest"))
    again = one.process(one.frame_of([(0, b"same", b"k"), (0, b"same", b"k")]))
    assert (again.inserted, again.duplicate, one.target().count()) == (0, 2, 2)


@pytest.mark.slow
def test_late_events_are_not_lost_and_a_copy_with_another_time_is_the_same_event(desk: MakeDesk) -> None:
    """I3: the table is searched for an event id without any time window, neither of event time nor of the clock."""
    one = desk({"at": "TIMESTAMP"}, event_time="at", conflicts="batch")
    one.batch(order("a", at="2025-01-02T00:00:00Z"), order("b", at="2025-01-01T00:00:00Z"))
    late = one.batch(order("c", at="2019-06-01T00:00:00Z"), order("a", at="2024-12-01T00:00:00Z"), order("d", at="2030-01-01T00:00:00Z"))
    assert (late.inserted, late.duplicate) == (2, 1)
    last = one.batch(order("b", at="2031-01-01T00:00:00Z"), order("c", at="2031-01-01T00:00:00Z"))
    assert (last.inserted, last.duplicate) == (0, 2)
    assert [name for (name,) in one.rows("id")] == ["a", "b", "c", "d"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(("id",), id="column"),
        pytest.param("key", id="key"),
        pytest.param("header:id", id="header"),
    ],
)
def test_a_stamped_event_that_kafka_contains_twice_is_one_row_with_the_stamped_id(lane: MakeLane, place: object) -> None:
    """I3: the stamp puts the id where the MERGE reads it. One copy comes from a lost reply, another from a caller's retry."""
    one = lane({"n": "INT"}, event_id=place)
    first, other = (event_id.stamp(one.contract, {"n": number}) for number in (1, 2))

    def send(producer: Producer, event: event_id.Stamped) -> None:
        value = json.dumps(dict(event.value)).encode()
        producer.send(one.contract.source.topic, value, key=event.key, headers=event.headers)
        producer.flush()

    with Proxy(one.bootstrap_servers) as proxy, Producer(AtLeastOnce(idempotent=False), proxy.bootstrap_servers) as producer:
        send(producer, other)
        proxy.cut_reply(Api.PRODUCE)
        send(producer, first)
        send(producer, event_id.stamp(one.contract, first.value, key=first.key, headers=first.headers))
    (report,) = one.run()
    assert (report.records_read, report.inserted, report.duplicate) == (4, 2, 2)
    name = "id" if place == ("id",) else "_event_id"
    assert {(row[name], row["n"]) for row in one.target().collect()} == {(*first.event_id, 1), (*other.event_id, 2)}
