"""Every batch is capped, whatever the topic holds: a batch's event ids have to fit the driver."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
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
    query: Any = TableQuery(Contract.model_validate(document), places, KafkaOptions("127.0.0.1:1"), [Topic("t", "", (0,))], print)
    options = query._source_options(SimpleNamespace(topics={0: "t"}, starts={(0, 0): 0}), option)
    assert options["maxOffsetsPerTrigger"] == limit
    assert (options["subscribe"], options["startingOffsets"]) == ("t", '{"t": {"0": 0}}')


def test_spark_gets_the_start_of_each_topic_that_the_epoch_reads(tmp_path: Path) -> None:
    """I2: one that has left has no start, and none of its partitions is read."""
    source = {"topic_pattern": "[or].*", "format": "raw"}
    contract = Contract.model_validate({"pipeline": "t", "table": "events", "source": source, "event_id": "position"})
    topics = [Topic("returns", "", (0,)), Topic("orders", "", (0, 1))]
    query: Any = TableQuery(contract, Places(str(tmp_path), str(tmp_path), "t", "events"), KafkaOptions("127.0.0.1:1"), topics, print)
    epoch = SimpleNamespace(topics={0: "orders", 3: "returns"}, starts={(0, 0): 7, (0, 1): 9, (3, 0): 2})
    options = query._source_options(epoch, None)
    assert options["subscribe"] == "orders,returns"
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 7, "1": 9}, "returns": {"0": 2}}
