"""The ledger's summary on its edges, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.errors import Refused
from ingest.places import Places
from ingest.stream.ledger_reader import summarise
from ingest.stream.ledger_summary import LedgerSummary


def test_a_ledger_that_is_not_there_is_empty_and_one_with_a_hole_is_named(tmp_path: Path) -> None:
    """I6: deltalake would say it in words of its own."""
    places = Places(str(tmp_path), str(tmp_path), "shop", "orders")
    assert summarise(None, places) == LedgerSummary()
    log = Path(places.ledger) / "_delta_log"
    log.mkdir(parents=True)
    for version in (0, 2):
        (log / f"{version:020}.json").write_text('{"commitInfo": {}}', encoding="utf-8")
    with pytest.raises(Refused, match=r"LOG_TORN.*lacks the commit of version 1"):
        summarise(None, places)
