"""A lake that the direct writer cannot write to is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.run.table_query import TableQuery
from ingest.run.writer_setting import Writer
from ingest.runtime.errors import InvalidInput
from ingest.runtime.places import Places
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("lake", "checkpoints", "named"),
    [("s3a://bucket/lake", "/tmp/c", "its lake at s3a://bucket/lake"), ("/tmp/l", "abfss://c@a/c", "its checkpoints at abfss://c@a/c")],
)
def test_a_lake_or_checkpoints_on_an_object_store_are_refused_by_name(lake: str, checkpoints: str, named: str) -> None:
    places = Places(lake, checkpoints, "shop", "orders")
    kafka, topics = KafkaOptions("127.0.0.1:1"), [Topic("orders", "id", (0,))]
    with pytest.raises(InvalidInput, match=rf"(?s)DIRECT_UNFIT.*shop\.orders.*{named}.*INGEST_WRITER=spark"):
        TableQuery(CONTRACT, places, kafka, topics, lambda _: None, writer=Writer.DIRECT)
    chosen = TableQuery(CONTRACT, places, kafka, topics, lambda _: None)
    assert named in chosen.notes[0] and chosen.notes[0].startswith("Delta in Spark writes")


def test_a_local_lake_is_not_refused(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    TableQuery(CONTRACT, places, KafkaOptions("127.0.0.1:1"), [Topic("orders", "id", (0,))], lambda _: None, writer=Writer.DIRECT)
