"""Every record is classified and every gap explained; an injected loss or foreign row is found in its batch (I4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ingest.delta.batch_commit import BatchId
from ingest.delta.posting import Key, Posting, Sums
from ingest.kafka.intervals import Intervals
from ingest.kafka.log.fetch import Bounds
from ingest.kafka.log.partition_scan import Kind, PartitionScan
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId
from ingest.ledger.ledger_line import Line
from ingest.verify.classification import Classification, classify

# One letter for the kind of each offset. For committed records it also says where they are stored.
KINDS = {
    "t": Kind.COMMITTED,  # in the target
    "q": Kind.COMMITTED,  # in the quarantine
    "d": Kind.COMMITTED,  # a duplicate
    "a": Kind.ABORTED,
    "u": Kind.UNSTABLE,
    "c": Kind.COMMIT_MARKER,
    "x": Kind.ABORT_MARKER,
    "h": Kind.HOLE,
    "e": Kind.EXPIRED,
    "b": Kind.BEYOND,
}


def at(text: str, letters: str) -> list[int]:
    return [offset for offset, letter in enumerate(text) if letter in letters]


def scan_of(text: str) -> PartitionScan:
    classes = [Intervals.of_offsets([o for o, letter in enumerate(text) if KINDS[letter] is kind]) for kind in Kind]
    return PartitionScan("t", 0, 0, len(text), Bounds(0, len(text), len(text)), *classes)


def ledger(text: str, cuts: Sequence[int] = ()) -> list[Line]:
    """Lines of the batches that read this text, split at `cuts`. Holes, expired and later offsets count as gaps."""
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    return [row(number, start, text[start:end]) for number, (start, end) in enumerate(pairwise(edges))]


def row(number: int, start: int, text: str, *, epoch: int = 1, contract_hash: str = "hash", partition: int = 0, **changes: Any) -> Line:
    t, q, d = (text.count(letter) for letter in "tqd")
    at = OffsetRange(partition, start, start + len(text))
    posting = Posting(Key(epoch, number, 0, partition), "batch", at, t + q + d, Sums(t), Sums(q), d)
    about = BatchId(epoch, number), "writer", TopicId("t", "id"), number + 1, contract_hash, datetime(2025, 1, 2, tzinfo=UTC)
    id, writer, topic, version, hash_, moment = about
    return Line(dataclasses.replace(posting, **changes), "shop", "orders", id, writer, topic, "target", version, hash_, moment)


def placed(text: str, rows: list[Line] | None = None, **changes: Any) -> Classification:
    held: dict[str, Any] = {"target": at(text, "t"), "quarantine": at(text, "q")} | changes
    return classify(scan_of(text), ledger(text) if rows is None else rows, **held)


texts = st.text(alphabet="tttqdacxhueb", max_size=40)
cuts = st.lists(st.integers(0, 40), max_size=4)


@given(texts, cuts)
def test_a_correct_table_has_no_finding_and_each_offset_has_one_class(text: str, where: list[int]) -> None:
    """I4."""
    found = placed(text, ledger(text, where))
    assert found.findings == ()
    assert found.in_target.offsets().tolist() == at(text, "t")
    assert found.in_quarantine.offsets().tolist() == at(text, "q")
    assert found.elsewhere.offsets().tolist() == at(text, "d")
    assert found.unverifiable.offsets().tolist() == at(text, "eb")
    assert {kind: offsets.offsets().tolist() for kind, offsets in found.gaps} == {
        kind: at(text, letter) for letter, kind in KINDS.items() if letter in "auhcx" and letter in text
    }
    assert (found.records, found.rows_unverifiable) == (len(at(text, "tqd")), 0)


@given(texts, cuts, st.data())
def test_a_record_that_no_table_has_is_elsewhere_unless_a_delete_took_it(text: str, where: list[int], data: st.DataObject) -> None:
    """I4: whether it is lost, only its event id can say."""
    stored = at(text, "tq")
    assume(stored)
    lost = data.draw(st.sampled_from(stored))
    held = {name: [offset for offset in at(text, letter) if offset != lost] for name, letter in (("target", "t"), ("quarantine", "q"))}
    found = placed(text, ledger(text, where), **held)
    assert (found.findings, lost in found.elsewhere.offsets().tolist()) == ((), True)
    after = placed(text, ledger(text, where), **held, removed=[lost])
    assert (after.findings, after.removed.offsets().tolist()) == ((), [lost])
    assert after.elsewhere.offsets().tolist() == at(text, "d")


@given(texts, cuts, st.data())
def test_a_row_at_a_position_without_a_record_is_found_in_its_batch(text: str, where: list[int], data: st.DataObject) -> None:
    """I4: an aborted record that was ingested, or a row that no producer sent."""
    nothing = at(text, "acxu")
    assume(nothing)
    foreign = data.draw(st.sampled_from(nothing))
    for table, letter, code in (("target", "t", "ROW_WITHOUT_RECORD"), ("quarantine", "q", "QUARANTINED_WITHOUT_RECORD")):
        (found,) = placed(text, ledger(text, where), **{table: [*at(text, letter), foreign]}).findings
        assert found.code == code and KINDS[text[foreign]].value in found.what
        assert found.start_offset is not None and found.end_offset is not None
        assert found.start_offset <= foreign < found.end_offset


@given(texts, st.data())
def test_a_wrong_count_in_the_books_is_found(text: str, data: st.DataObject) -> None:
    """I4: counts must be exact where Kafka has all records. Elsewhere each hole or expired offset allows one more."""
    (right,) = ledger(text or "t")
    off = data.draw(st.integers(-right.posting.read, len(text or "t")).filter(bool))
    wrong = dataclasses.replace(right, posting=dataclasses.replace(right.posting, read=right.posting.read + off))
    unknown = len(at(text, "heb"))
    codes = [found.code for found in placed(text or "t", [wrong]).findings]
    assert codes == ([] if 0 < off <= unknown else ["READ_DIFFERS"])


def test_rows_of_records_that_kafka_compacted_or_expired_are_unverifiable() -> None:
    """I4: the records were read and are in the target, but Kafka no longer has them."""
    rows = [row(0, 0, "tttqdt")]
    found = placed("eehhht", rows, target=[0, 1, 2, 5], quarantine=[3])
    assert (found.findings, found.rows_unverifiable, found.records, len(found.unverifiable)) == ((), 4, 1, 2)


def test_with_read_uncommitted_aborted_records_count_as_records() -> None:
    """I4."""
    text = "tacux"
    rows = [row(0, 0, text, read=3)]
    found = placed(text, rows, target=[0, 1, 3], isolation="read_uncommitted")
    assert (found.findings, list(found.in_target), [kind for kind, _ in found.gaps]) == (
        (),
        [(0, 2), (3, 4)],
        [Kind.COMMIT_MARKER, Kind.ABORT_MARKER],
    )
    assert {f.code for f in placed(text, rows, target=[0, 1, 3]).findings} == {"READ_DIFFERS", "ROW_WITHOUT_RECORD"}


def test_ranges_of_an_earlier_contract_are_checked_at_its_isolation_level() -> None:
    """I4: the first batch was read with aborted records, the second without them. The contract is the one of the second."""
    text = "tacta"
    first = row(0, 0, "tac", read=2, contract_hash="former")
    rows = [first, row(1, 3, "ta", read=1)]
    assert placed(text, rows, target=[0, 1, 3], contract_hash="hash").findings == ()
    assert "READ_DIFFERS" in {f.code for f in placed(text, rows, target=[0, 1, 3], contract_hash=None).findings}
    lost = [row(0, 0, "tac", read=3, contract_hash="former"), rows[1]]
    assert "READ_DIFFERS" in {f.code for f in placed(text, lost, target=[0, 1, 3], contract_hash="hash").findings}, "no level explains it"


def test_a_record_in_both_tables_is_reported_and_offsets_outside_of_the_ledger_are_ignored() -> None:
    found = placed("tqttt", [row(0, 0, "tq")], target=[0, 1, 4], quarantine=[1])
    assert (list(found.in_both), list(found.in_target), found.records) == ([(1, 2)], [(0, 1)], 2)


def test_a_batch_outside_of_the_scan_raises_value_error() -> None:
    for outside in (row(0, 0, "tt", partition=1), row(0, 0, "ttttttttt")):
        with pytest.raises(ValueError, match="not of partition 0"):
            placed("tt", [outside])
