"""An unclean election takes records back that a table has read, and others get their offsets (I6). Two real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import answers
from ingest.observe.table_status import status
from ingest.runtime import crash_points
from ingest.runtime.errors import Refused
from tests.integration.interpreted import interpreted
from tests.integration.lane import Lane, order
from tests.integration.records import contract
from tests.integration.test_against_kafka import reread
from tests.two_brokers import TwoBrokers, two_brokers

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[TwoBrokers]:
    with two_brokers(tmp_path / "brokers", "elected") as running:
        yield running


def test_a_log_that_an_unclean_election_cut_and_that_grew_again_is_refused_while_running_and_at_a_start(
    brokers: TwoBrokers, spark: SparkSession, tmp_path: Path, by_workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the leader epoch, the run would go on at offset 7, and never read what the new leader has at 3 to 6."""
    one = Lane(spark, contract(topic="elected"), brokers.bootstrap_servers, tmp_path, direct=by_workers)
    with interpreted(spark):
        one.send(order("a"), order("b"), order("c"))
        one.run()
        brokers.stop_copying()
        one.send(order("lost1"), order("lost2"))
        one.run()
        assert [batch_commit.ranges[0].leader_epoch for _, batch_commit in one.batches()] == [0, 0]

        one.send(order("lost3"), order("lost4"))
        at, before = crash_points.at, one.versions()

        def elected(point: str, batch: int, *more: str) -> None:
            if (point, batch) == ("after_offset_log", 2):
                before.update(one.versions())  # with the fences of this epoch
                brokers.elect_the_other()
                one.send(*(order(f"new{n}") for n in range(6)))
            at(point, batch, *more)

        monkeypatch.setattr(crash_points, "at", elected)
        error = one.stopped()
        monkeypatch.undo()
        assert (error.code, error.exit_code) == ("LOG_TRUNCATED", 5), error
        assert "partition 0 [3, 5)" in error.found
        assert one.versions()["target"] == before["target"], "nothing of the batch was written"

        refused = one.refused("LOG_TRUNCATED")
        assert "partition 0 [3, 5)" in refused.found and "recreate it from that copy" in refused.remedy
        for to in ("table", "earliest", "latest"):
            with pytest.raises(Refused, match="LOG_TRUNCATED"):
                one.seek(to)
        assert one.ids() == ["a", "b", "c", "lost1", "lost2"]

        shown = status(one.contract, one.places, answers(KafkaOptions(brokers.bootstrap_servers), [one.contract.source])[0], None)
        assert shown.refusal is not None and shown.refusal["code"] == "LOG_TRUNCATED"

        one.balanced()  # the table's own books know nothing of the topic
        again = [(each.code, each.start_offset, each.end_offset, each.what.split(" than")[0]) for each in reread(one).findings]
        truncated, of_time, of_id = again
        assert truncated[:3] == ("LOG_TRUNCATED", 3, 5)
        assert of_time == ("RECORD_DIFFERS", 3, 5, "Kafka's record has another time")
        assert of_id == ("RECORD_DIFFERS", 3, 5, "Kafka's record has another event id")
