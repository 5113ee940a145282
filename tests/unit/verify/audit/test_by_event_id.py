"""An audit by event id, against a log in memory whose keys are the ids: what is lost, doubled, aborted, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.partition_scan import Isolation, Kind
from ingest.kafka.log.record_batch import Marker, Record
from ingest.runtime.errors import InvalidInput
from ingest.verify.audit.audited_table import id_text
from ingest.verify.audit.by_event_id import ABORTED_COPIES, AGAIN, COPIES, UNREADABLE, by_event_id
from ingest.verify.audit.by_position import GONE
from ingest.verify.audit.findings import Audit, Fault
from ingest.verify.audit.reach import BEFORE, BETWEEN, NO_ROWS, Reach
from ingest.verify.audit.topic_ids import RecordId, hashes_of, read_ids
from tests.batches import MemoryLog, batch

pytestmark = pytest.mark.unit

# a b c, marker; x a (aborted), marker; d a e; f (open). `a` is sent three times, once in the aborted transaction.
LOG = MemoryLog(
    Bounds(0, 10, 11),
    [
        (2, batch(0, 3, producer=1, transactional=True, keys=[b"a", b"b", b"c"])),
        (3, batch(3, producer=1, marker=Marker.COMMIT)),
        (5, batch(4, 2, producer=2, transactional=True, keys=[b"x", b"a"])),
        (6, batch(6, producer=2, marker=Marker.ABORT)),
        (9, batch(7, 3, keys=[b"d", b"a", b"e"])),
        (10, batch(10, 1, producer=3, transactional=True, keys=[b"f"])),
    ],
    [(2, 4, 6)],
)


def audited(ids: str, log: MemoryLog = LOG, start: str | None = None, stop: str | None = None, **more: Any) -> Audit:
    """The audit of a table with these ids, one letter each."""
    rows = hashes_of([(letter.encode(),) for letter in ids], 1)
    isolation: Isolation = more.pop("isolation", "read_committed")
    return by_event_id(read_ids(log, RecordId("key")), rows, more.pop("without", 0), isolation, Reach.parse(start, stop))


def places(found: Audit, fault: Fault) -> list[tuple[int, int, str]]:
    return [(line["offset"], line["rows"], line["why"]) for line in found.lines(fault, 100)]


def test_a_table_with_each_id_once_is_exact() -> None:
    found = audited("abcde")
    assert (found.ok, found.found.num_rows, found.records, found.rows) == (True, 0, 6, 5)
    assert found.gaps == {"aborted": 2, "unstable": 1, "commit marker": 1, "abort marker": 1}


def test_rows_too_many_are_divided_by_the_reason() -> None:
    found = audited("abbcdeaaaa")
    assert places(found, "doubled") == [(0, 1, COPIES), (0, 1, ABORTED_COPIES), (0, 2, AGAIN), (1, 1, AGAIN)]
    assert found.counts("doubled") == {AGAIN: 3, COPIES: 1, ABORTED_COPIES: 1}


def test_rows_of_aborted_open_and_unknown_ids_are_kept_apart() -> None:
    found = audited("abcdexxfz")
    assert [(line["offset"], line["rows"]) for line in found.lines("aborted", 9)] == [(4, 2)]
    assert [(line["offset"], line["rows"]) for line in found.lines("undecided", 9)] == [(10, 1)]
    assert [(line["offset"], line["rows"]) for line in found.lines("no record", 9)] == [(None, 1)]


def test_lost_ids_and_ids_that_are_not_read_yet_are_kept_apart() -> None:
    found = audited("ac")
    assert (places(found, "lost"), found.not_read) == ([(1, 1, BETWEEN)], {0: 2}), "a's copy at 8 does not mean that d was read"
    assert places(audited("ac", stop="end"), "lost")[0] == (1, 1, BETWEEN) and len(places(audited("ac", stop="end"), "lost")) == 3
    assert places(audited("c"), "lost") == [(0, 1, BEFORE), (1, 1, BEFORE)]


def test_an_id_that_is_lost_with_all_its_copies_is_one_loss() -> None:
    assert places(audited("bcde"), "lost") == [(0, 1, BEFORE)]
    assert places(audited("bcde", start="1"), "lost") == [(8, 1, BETWEEN)]


def test_a_row_without_record_proves_nothing_where_kafka_has_deleted_records() -> None:
    expired = replace(LOG, bounds_=Bounds(1, 10, 11))
    found = audited("abcdez", expired)
    assert (found.ok, found.unverifiable, found.expired) == (True, {GONE[Kind.EXPIRED]: 1}, 1)
    thinned = MemoryLog(Bounds(0, 3, 3), [(2, batch(0, [0, 2], span=3, keys=[b"a", b"b"]))])
    assert audited("abz", thinned).unverifiable == {GONE[Kind.HOLE]: 1}


def test_a_record_without_id_may_explain_one_row() -> None:
    log = MemoryLog(Bounds(0, 3, 3), [(2, batch(0, 3, keys=[b"a", None, b"c"]))])
    found = audited("acz", log)
    assert (found.ok, found.unverifiable, found.records_without_id, found.records) == (True, {UNREADABLE: 1}, 1, 3)
    assert audited("acz", log, without=1).counts("no record") and audited("acyz", log).counts("no record")


def test_a_tombstone_or_an_aborted_record_without_id_explains_no_row() -> None:
    tombstone = MemoryLog(Bounds(0, 3, 3), [(2, batch(0, 3, keys=[b"a", None, b"c"], values=[b"", None, b""]))])
    assert (audited("acz", tombstone).ok, audited("acz", tombstone).records_without_id) == (False, 1)
    aborted = MemoryLog(
        Bounds(0, 5, 5),
        [
            (1, batch(0, 2, keys=[b"a", b"b"])),
            (3, batch(2, 2, producer=2, transactional=True, keys=[None, None])),
            (4, batch(4, producer=2, marker=Marker.ABORT)),
        ],
        [(2, 2, 4)],
    )
    assert audited("abz", aborted).counts("no record")
    assert audited("abz", aborted, isolation="read_uncommitted").unverifiable == {UNREADABLE: 1}


def test_a_table_without_rows_is_not_exact() -> None:
    found = audited("")
    assert (found.ok, found.counts("lost"), found.partitions_without_rows) == (False, {NO_ROWS: 5}, (0,))
    assert not audited("", stop="0").ok


def test_an_audit_is_complete_unless_rows_cannot_be_judged() -> None:
    assert audited("abcde").complete
    expired = audited("abcdez", replace(LOG, bounds_=Bounds(1, 10, 11)))
    assert (expired.ok, expired.complete) == (True, False)


def test_a_reader_of_uncommitted_records_should_have_all_ids() -> None:
    assert audited("abcdexf", isolation="read_uncommitted").ok
    assert [offset for offset, _, _ in places(audited("abcdef", isolation="read_uncommitted"), "lost")] == [4]


def of(record_id: str, value: bytes | None = None, key: bytes | None = None, headers: Sequence[tuple[str, bytes | None]] = ()) -> Any:
    return RecordId(record_id).of(Record(0, 0, key, value, tuple(headers)))


def test_ids_are_found_in_json_keys_and_headers() -> None:
    value = json.dumps({"id": "ä", "n": 7, "after": {"id": "x", "none": None}, "list": [1], "yes": True}).encode()
    assert of("$.id", value) == ("ä".encode(),)
    assert of("$.n,$.after.id", value) == (b"7", b"x")
    assert [of(f"$.{name}", value) for name in ("list", "yes", "no", "after", "after.none", "after.no", "id.x")] == [(None,)] * 7
    assert of("key", value, b"\xff") == (b"\xff",)
    assert of("$.id", b'{"id": "a\\ud800"}') == (b"a\xed\xa0\x80",), "half of a character"
    assert id_text(of("$.id", b'{"id": "a\\ud800"}')) == r"a\xed\xa0\x80"
    assert of("header:id,key", None, b"k", [("id", b"1"), ("id", b"2")]) == (b"2", b"k")
    assert of("header:id,$.id", b"", b"k") == (None, None)


@pytest.mark.parametrize(
    "value", [b'{"id":"x","n":NaN}', b'{"id":"x"} and more', b'\0\0\0\0\7{"id":"x"}', b' {"id":"x","t":"\n"}', b'{"id":"x","t":"\xff"}']
)
def test_what_spark_would_read_has_an_id_too(value: bytes) -> None:
    assert of("$.id", value) == (b"x",)


@pytest.mark.parametrize("value", [None, b"", b"no", b"[1]", b"7", b'"id"', b'{"id":'])
def test_other_values_have_none(value: bytes | None) -> None:
    assert of("$.id", value) == (None,)


@pytest.mark.parametrize("text", ["id", "$", "$.", "$.a[0]", "$.a..b", "header:", "avro", "$.a,"])
def test_another_place_of_an_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="AUDIT_RECORD_ID"):
        RecordId(text)


def test_a_topic_without_any_id_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"AUDIT_NO_IDS.*header:id"):
        read_ids(LOG, RecordId("header:id"))
    assert read_ids(MemoryLog(Bounds(0, 0, 0), []), RecordId("key")).hashes.size == 0


def test_hashes_of_records_and_rows_agree_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_ids(LOG, RecordId("key"))
    monkeypatch.setattr("ingest.verify.audit.topic_ids.CHUNK", 2)
    assert np.array_equal(read_ids(LOG, RecordId("key")).hashes, whole.hashes)
