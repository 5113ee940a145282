"""What the start of a table says where nothing proves that there was one before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.files import LocalFiles
from ingest.places import Places
from ingest.stream.assessment import Assessment
from ingest.stream.binding import Binding, read_binding
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.opening import Opening
from ingest.stream.preflight import decide
from ingest.stream.situation import CheckpointFacts, TableFacts
from ingest.stream.topic import Topic
from tests.unit.proof_lake import CONTRACT

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


@pytest.mark.parametrize(
    "before", [None, Binding("orders", "", "t"), Binding("orders", "id", "t", 1, ("q0",))], ids=["none", "no id", "older"]
)
def test_a_start_remembers_the_cluster_and_what_an_upgraded_broker_tells(before: Binding | None, tmp_path: Path) -> None:
    """I6: what the next start compares; a checkpoint of before it was kept gets it too, and loses nothing of its own."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"metaData": {"id": "t"}}))
    one: Any = opening("earliest", BLANK, CheckpointFacts("/checkpoints/shop/orders", binding=before))
    one._places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    one._files = one._lake = LocalFiles()
    one._log, one._quarantine = DeltaLog(LocalFiles(), str(tmp_path)), None
    one._topic = Topic("orders", "id", (0,), "c")
    one.bind(anew=False)
    kept = replace(before or Binding("orders", "id", "t"), topic_id="id", cluster="c")
    assert read_binding(LocalFiles(), one._places.state) == kept
