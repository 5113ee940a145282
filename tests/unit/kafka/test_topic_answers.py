"""What `ingest status` shows of topics if the broker does not answer."""

from __future__ import annotations

import socket

from ingest.contract.definition import TopicSource
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import answers


def test_a_broker_that_does_not_answer_is_an_error_for_each_topic() -> None:
    sources = [TopicSource(topic="orders", format="json"), TopicSource(topics=("orders", "payments"), format="json")]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        found = answers(KafkaOptions(f"127.0.0.1:{unused.getsockname()[1]}"), sources)
    assert [isinstance(each, dict) and each["code"] for each in found] == ["BROKER_UNREACHABLE", "BROKER_UNREACHABLE"]
