"""The books: all postings of a table, from ledger and logs, each once; what the tables should hold by them (I4, I7)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import write_deltalake

from ingest.delta.batch_commit import BatchId, State
from ingest.delta.posting import NOTHING, Key, Posting
from ingest.kafka.intervals import Intervals
from ingest.kafka.topic_state import TopicId
from ingest.ledger.books import Books, added_by, read_books
from tests.unit.recovery.engine_scene import Scene
from tests.unit.verify.proof_lake import ENGINE, TOPIC, Lake, sums

FIRST, SECOND = Key(1, 2, 0, 0), Key(1, 3, 0, 0)


def held(offsets: range | list[int], of: BatchId | None = None, *, quarantine: bool = False) -> object:
    return sums(of or BatchId(1, 2), 0, offsets, None if quarantine else offsets)


def outcome(books: Books) -> list[tuple[int, int, int | None, int, int]]:
    """Read, inserted, present, duplicate and quarantined of each batch."""
    postings = [line.posting for line in books.batches]
    return [(each.read, each.inserted, each.present, each.duplicate, each.quarantine.rows) for each in postings]


def post(lake: Lake, *postings: Posting) -> None:
    """A statement with postings alone."""
    lake.rows((), batch_commit=lake.batch_commit(State(), lake.number, *postings))
    lake.number += 1


def test_the_books_are_the_same_from_the_ledger_the_log_and_both(tmp_path: Path) -> None:
    """I7."""
    scene = Scene(tmp_path)
    scene.first()
    scene.batch(0, 10, range(7), (8, 9), duplicates=1)
    without = scene.books()
    scene.keep()
    both = scene.books()
    scene.batch(10, 20, range(10, 20))
    scene.keep()
    scene.rows(())
    scene.clean("target", scene.target.version())
    cleaned = scene.books()
    assert without.lines == both.lines == cleaned.lines[:2] and (without.late, both.late, cleaned.late) == (2, 0, 0)
    assert outcome(cleaned) == [(10, 7, 0, 1, 2), (10, 10, 0, 0, 0)] and cleaned.differing == ()
    assert (cleaned.topics, cleaned.last, cleaned.unsettled) == ({0: TOPIC}, {1: 3}, frozenset())
    assert cleaned.covered((0, 0)) == Intervals.of([(0, 20)]) and cleaned.covered((0, 1)) == Intervals.of()
    shutil.rmtree(scene.places.ledger)
    assert outcome(scene.books()) == [], "neither has it"


def test_the_books_at_a_version_of_the_target_end_there(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    version = lake.target.version()
    lake.batch(10, 20, range(10, 20))
    lake.keep()
    for kept in (True, False):
        assert outcome(read_books(ENGINE, lake.places, version)) == [(10, 10, 0, 0, 0)]
        if kept:
            shutil.rmtree(lake.places.ledger)


def test_what_the_tables_hold_is_the_sum_of_all_postings(lake: Lake) -> None:
    """I4: a batch, an erasure, a retention, and what a seek wrote off."""
    lake.batch(0, 10, range(8), (8, 9))
    lake.batch(10, 20, range(10, 20))
    lake.erase(3)
    lake.retire(8)
    lake.take(4, 15)
    lake.seek(0)
    for _ in range(2):
        books = lake.books()
        assert books.held("target") == {
            FIRST: held([0, 1, 2, 5, 6, 7]),
            SECOND: held([*range(10, 15), *range(16, 20)], BatchId(1, 3)),
        }
        assert books.held("quarantine") == {FIRST: held([9], quarantine=True)}
        lake.keep()


def test_an_open_posting_is_completed_from_its_version_until_a_statement_does_so(lake: Lake) -> None:
    """Delta in Spark tells only after a MERGE what it has inserted."""
    lake.batch(0, 10, range(6), (8, 9), duplicates=1, opened=True)
    lake.target.delete("_offset = 3")
    first = lake.books()
    assert outcome(first) == [(10, 6, 1, 1, 2)] and first.held("target") == {FIRST: held(range(6))}, "the version's own rows"
    (opened,) = [line.posting for line in first.lines if line.posting.range is not None]
    (said,) = added_by(ENGINE, lake.places, 1, ("id",), [opened])
    assert said == Posting(FIRST, "batch", target=held(range(6)), present=1)  # type: ignore[arg-type]
    lake.number += 1
    post(lake, said)
    lake.keep()
    lake.take()  # writes every file anew
    lake.vacuum()
    settled = lake.books()
    assert outcome(settled) == outcome(first) and settled.unsettled == frozenset()
    assert len(settled.lines) == 2, "it is not counted twice"
    assert lake.verified().findings == ()


def test_rows_that_nobody_can_count_any_more_are_unsettled_and_no_finding(lake: Lake) -> None:
    """VACUUM removed the files before a statement said what the MERGE had inserted."""
    lake.batch(0, 10, range(8), (8, 9), opened=True)
    lake.take()  # writes every file anew
    lake.vacuum()
    books = lake.books()
    assert (books.unsettled, books.held("target")) == (frozenset({FIRST}), {})
    assert books.held("quarantine") == {FIRST: held([8, 9], quarantine=True)}
    verified = lake.verified()
    assert (verified.findings, verified.target.found) == ((), 8)
    lake.batch(10, 20, range(10, 20))
    lake.take(12)
    assert lake.codes() == ["ROWS_DIFFER"], "other batches are judged"


def test_a_statement_that_another_engine_repeats_is_counted_once(lake: Lake) -> None:
    """I1: a MERGE or an OPTIMIZE that takes over our metadata, and even our transaction id."""
    lake.batch(0, 10, range(10))
    version = lake.target.version()
    mine = lake.log().commit(version).batch_commit
    assert mine is not None
    lake.rows((), batch_commit=mine)
    for _ in range(2):
        books = lake.books()
        assert [line.version for line in books.lines] == [version] and books.held("target") == {FIRST: held(range(10))}
        assert books.differing == ()
        assert lake.codes() == []


def test_lines_of_a_ledger_that_was_written_twice_count_once(lake: Lake) -> None:
    """Two processes may append at once."""
    lake.batch(0, 10, range(10))
    lake.keep()
    lake.ledger.delete("false")
    lake.keep()
    twice = lake.ledger.to_pyarrow_table()
    write_deltalake(lake.places.ledger, twice, mode="append")
    assert len(lake.ledger.to_pyarrow_table()) == 2 * len(twice) and outcome(lake.books()) == [(10, 10, 0, 0, 0)]
    assert lake.verified().findings == ()


def test_a_rebuild_is_one_batch_and_the_rows_of_all_its_epochs_are_its(lake: Lake) -> None:
    lake.batch(0, 10, range(8), (8, 9))
    lake.seek(15, gaps=[(10, 15)])
    lake.batch(15, 30, range(15, 30))
    lake.swap(0, 20)
    books, first = lake.books(), lake.epoch - 1
    rebuilt = Key(first, 0, 0, 0)
    assert (books.rebuilt, books.rebuilt_until, outcome(books)) == (first, first + 1, [(20, 20, 0, 0, 0)])
    assert books.folded(Key(first, 7, 0, 3)) == Key(first, 0, 0, 3) and books.folded(FIRST) == FIRST
    assert books.folded(Key(first + 1, 2, 0, 0)) == Key(first + 1, 2, 0, 0)
    assert [str(line.posting.range) for line in books.former_gaps] == ["0:[10,15)"]
    lake.erase(3, of=BatchId(first, 2))
    after = lake.books().held("target")
    assert list(after) == [rebuilt]
    assert after[rebuilt] - books.held("target")[rebuilt] == NOTHING - sums(BatchId(first, 2), 0, [3], [3])


@pytest.mark.parametrize("changes", [{"target_hash": "1"}, {"present": "3"}, {"statement_batch": "9"}], ids=str)
def test_lines_that_differ_from_their_commit_are_those_of_the_commit(lake: Lake, changes: dict[str, str]) -> None:
    """I7: the ledger is only a projection."""
    lake.batch(0, 10, range(10))
    right = lake.books()
    lake.keep()
    lake.ledger.update(updates=changes, predicate="why = 'batch'")
    books = lake.books()
    if "statement_batch" in changes:  # no commit has this statement
        assert books.late == 1 and len(books.lines) == 2
        return
    assert (books.lines, [line.id for line in books.differing]) == (right.lines, [BatchId(1, 2)])


def test_the_topic_of_a_number_is_that_of_the_statements_about_it(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    recreated = replace(lake.topic, id="recreated")
    lake.topic = recreated
    lake.seek(0)
    lake.erase(0)
    books = lake.books()
    assert (books.topics, books.last, books.epochs) == ({0: TOPIC, 1: recreated}, {1: 2}, (1, 2)), "an upkeep names no topic"


def test_a_topics_id_is_that_of_the_newest_statement(lake: Lake) -> None:
    """Brokers that were upgraded report one."""
    lake.sources = [replace(TOPIC, id="")]
    lake.batch(0, 10, range(10))
    lake.sources = [TOPIC]
    lake.batch(10, 20, range(10, 20))
    for _ in range(2):
        assert lake.books().topics == {0: TOPIC}
        lake.keep()


def test_what_is_covered_and_held_is_each_topics_own(lake: Lake) -> None:
    """I4, I6: the same offsets of partition 0 in two topics, of which one has a gap."""
    lake.batch(0, 10, range(10))
    lake.topic, lake.shift = TopicId("returns", "another"), 100
    lake.seek(4, gaps=[(2, 4)])
    lake.batch(4, 6, (4,), (5,))
    for _ in range(2):
        books = lake.books()
        assert books.covered((0, 0)) == Intervals.of([(0, 10)]) and books.covered((1, 0)) == Intervals.of([(2, 6)])
        assert books.held("target") == {FIRST: held(range(10)), Key(2, 2, 1, 0): sums(BatchId(2, 2), 0, [4], [104], 1)}
        assert books.held("quarantine") == {Key(2, 2, 1, 0): sums(BatchId(2, 2), 0, [5], source=1)}
        lake.keep()
    assert lake.verified().findings == ()
