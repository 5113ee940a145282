"""What the broker says of some topics, asked by a process of its own while the caller reads files.

Loading kafka-python takes as long as loading all else that `ingest status` needs; beside each other on two cores both fit into its
half second.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import Any

from ingest.kafka.topic_state import TopicId, TopicState
from ingest.runtime.errors import IngestError

# What the broker has not said by then is unknown.
WITHIN_S = 2.0


class BrokerAnswers:
    """The process that asks; it ends with its answer, or with us. Start it first, ask as soon as the topics are known."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
        # A group of its own: a Ctrl-C is for us, and we end it.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", process_group=0)

    def __enter__(self) -> BrokerAnswers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()  # it holds nothing and writes nothing
        self._process.communicate()

    def ask(self, bootstrap_servers: str, topics: Sequence[str]) -> None:
        """Put the one question; login and certificates come from the environment, which the process shares."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([bootstrap_servers, list(topics)]) + "\n")
        self._process.stdin.flush()

    def answer(self, topic: str) -> TopicState | Mapping[str, str]:
        """What the broker said of the topic, or the error (a dict of code, found, expected, remedy) that kept it from saying so."""
        return self._answers[topic]

    @cached_property
    def _answers(self) -> dict[str, TopicState | Mapping[str, str]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that asks the broker ended without an answer; what it said is above")
        return {name: each.get("error") or _state(name, each) for name, each in json.loads(line).items()}


def _state(topic: str, reported: Mapping[str, Any]) -> TopicState:
    return TopicState(TopicId(topic, reported["id"], reported["cluster"]), {p: (first, end) for p, first, end in reported["bounds"]})


def main() -> None:
    """In the process: one line of JSON in (servers, topics), one out."""
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.topic import look

    question = sys.stdin.readline()
    if not question:
        return
    servers, topics = json.loads(question)
    kafka = KafkaOptions.from_environment(servers)

    def reported(name: str) -> dict[str, Any]:
        try:
            topic, bounds = look(kafka, name, WITHIN_S)
        except IngestError as error:
            return {"error": error.as_dict()}
        return {"id": topic.id, "cluster": topic.cluster, "bounds": [(partition, *ends) for partition, ends in bounds.items()]}

    with ThreadPoolExecutor(max_workers=max(1, len(topics))) as pool:
        print(json.dumps(dict(zip(topics, pool.map(reported, topics), strict=True))), flush=True)


if __name__ == "__main__":
    main()
