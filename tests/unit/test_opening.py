"""What the start of a table says where nothing proves that there was one before."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.places import Places
from ingest.stream.assessment import Assessment
from ingest.stream.binding import Binding
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.opening import Opening
from ingest.stream.preflight import CheckpointFacts, TableFacts, decide
from tests.unit.test_verify import CONTRACT

BLANK = TableFacts("/lake/shop/orders/target", id="t", blank=True)


def opening(offsets: str, table: TableFacts, checkpoint: CheckpointFacts) -> Opening:
    """As a start has found it."""
    one: Any = object.__new__(Opening)
    one._contract = CONTRACT.model_copy(update={"source": CONTRACT.source.model_copy(update={"starting_offsets": offsets})})
    one._places = Places("/lake", "/checkpoints", "shop", "orders")
    one._assessment = Assessment(checkpoint, table, LedgerSummary(), None, decide("shop.orders", checkpoint, table, None))
    found: Opening = one
    return found


def test_a_later_begin_at_the_topics_end_is_not_silent() -> None:
    """I6: a checkpoint that was deleted before its first batch leaves a table without any, and records behind where it began."""
    note = opening("latest", BLANK, CheckpointFacts("/checkpoints/shop/orders")).begins_late
    assert note is not None and "/lake/shop/orders/target" in note and "ingest rebase shop.orders --to" in note


@pytest.mark.parametrize(
    ("offsets", "table", "binding"),
    [
        ("earliest", BLANK, None),
        ("latest", TableFacts("/lake/shop/orders/target"), None),  # the very first start
        ("latest", BLANK, Binding("orders", "id", "t")),
    ],
)
def test_a_first_start_says_nothing(offsets: str, table: TableFacts, binding: Binding | None) -> None:
    assert opening(offsets, table, CheckpointFacts("/checkpoints/shop/orders", binding=binding)).begins_late is None
