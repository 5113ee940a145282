"""Every batch is capped, whatever the topic holds: a batch's event ids have to fit the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Topic
from ingest.run.table_query import TableQuery
from ingest.runtime.places import Places

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("source", "option", "limit"),
    [({}, None, "5000000"), ({"max_records_per_batch": 7}, None, "7"), ({"max_records_per_batch": 7}, 9, "9")],
    ids=["default", "contract", "option"],
)
def test_spark_gets_a_limit_for_each_batch(tmp_path: Path, source: dict[str, int], option: int | None, limit: str) -> None:
    """A first run once read a whole topic as one batch, if the contract named no limit."""
    document = {"pipeline": "t", "table": "events", "source": {"topic": "t", "format": "raw", **source}, "event_id": "position"}
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "t", "events")
    query: Any = TableQuery(Contract.model_validate(document), places, KafkaOptions("127.0.0.1:1"), Topic("t", "", (0,)), print)
    assert query._source_options({0: 0}, option)["maxOffsetsPerTrigger"] == limit
