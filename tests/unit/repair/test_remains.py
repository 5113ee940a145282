"""What an erasure says it has not touched."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from ingest.repair.remains import PAGE, left
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit


def test_places_are_listed_if_they_exist_here_and_the_page_describes_each(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    write_deltalake(places.target, pa.table({"id": ["a"]}), configuration={"delta.enableDeletionVectors": "true"})
    write_deltalake(places.quarantine, pa.table({"id": ["a"]}))
    always = ["Kafka", "the tables' logs", "the database", f"{places.lake}/logs", "other checkpoints", "copies"]
    assert [each.place for each in left(None, places, "orders")] == ["Kafka", places.target, *always[1:]]
    page = (Path(__file__).parents[3] / PAGE).read_text(encoding="utf-8")
    for words in (
        "**Kafka.**",
        "**Deletion vectors.**",
        "**Delta's log**",
        "**The database**",
        "**Spark's output**",
        "**The index of event ids on another host**",
        "- Copies",
    ):
        assert words in page, words
