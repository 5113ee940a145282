"""The ledger's ranges, cut where the batches that have read them change (I4)."""

from __future__ import annotations

import random

from ingest.prove.piece import pieces
from tests.unit.test_balance import row


def test_what_two_checkpoints_have_read_is_cut_at_their_seams() -> None:
    first, second, again = row(0, 0, 10), row(1, 10, 20), row(0, 5, 12, query_id="q2")
    found = pieces([again, second, row(2, 20, 20), first])
    assert [(part.start, part.end, set(part.rows)) for part in found] == [
        (0, 5, {first}),
        (5, 10, {first, again}),
        (10, 12, {second, again}),
        (12, 20, {second}),
    ]


def test_each_offset_is_in_the_piece_of_the_batches_that_have_read_it() -> None:
    chosen = random.Random(4)
    for _ in range(200):
        rows = []
        for number in range(chosen.randrange(6)):
            start = chosen.randrange(20)
            rows.append(row(number, start, start + chosen.randrange(8), partition=chosen.randrange(2)))
        found = {(part.partition, offset): part.rows for part in pieces(rows) for offset in range(part.start, part.end)}
        for partition in range(2):
            for offset in range(30):
                theirs = {each for each in rows if each.partition == partition and each.start_offset <= offset < each.end_offset}
                assert set(found.get((partition, offset), ())) == theirs
        assert sum(part.end - part.start for part in pieces(rows)) == len(found), "no offset is in two pieces"
