"""The state of some topics, requested from the broker by a separate process while the caller reads files.

Importing kafka-python takes as long as importing everything else that `ingest status` needs. In parallel on two cores, both fit into
the command's half second.
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
from ingest.runtime.output import guarded

# Deadline of each request. If the broker has not answered by then, the state of the topic is unknown.
WITHIN_S = 2.0


class BrokerAnswers:
    """The process that queries the broker. Start it first, then call `ask` as soon as the topics are known.

    The process ends after its answer, or when the caller ends.
    """

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
        # Its own process group, so that Ctrl-C reaches only the caller, which then ends the process.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", process_group=0)

    def __enter__(self) -> BrokerAnswers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()  # safe: it holds no locks and writes no files
        self._process.communicate()

    def ask(self, bootstrap_servers: str, topics: Sequence[str]) -> None:
        """Send the only request. The process reads login and certificates from the environment, which it shares with the caller."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([bootstrap_servers, list(topics)]) + "\n")
        self._process.stdin.flush()

    def answer(self, topic: str) -> TopicState | Mapping[str, str]:
        """The topic's state as the broker reports it, or the error as a dict (code, found, expected, remedy).

        Raises RuntimeError if the process ended without an answer.
        """
        return self._answers[topic]

    @cached_property
    def _answers(self) -> dict[str, TopicState | Mapping[str, str]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that asks the broker ended without an answer; its error output is above")
        return {name: each.get("error") or _state(name, each) for name, each in json.loads(line).items()}


def _state(topic: str, reported: Mapping[str, Any]) -> TopicState:
    return TopicState(TopicId(topic, reported["id"], reported["cluster"]), {p: (first, end) for p, first, end in reported["bounds"]})


def main() -> None:
    """The process itself: reads one line of JSON (servers, topics) and writes one line of JSON."""
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.topic import describe_with_bounds

    sys.stderr = guarded(sys.stderr)  # the terminal of the command
    request = sys.stdin.readline()
    if not request:
        return
    servers, topics = json.loads(request)
    kafka = KafkaOptions.from_environment(servers)

    def reported(name: str) -> dict[str, Any]:
        try:
            topic, bounds = describe_with_bounds(kafka, name, WITHIN_S)
        except IngestError as error:
            return {"error": error.as_dict()}
        return {"id": topic.id, "cluster": topic.cluster, "bounds": [(partition, *ends) for partition, ends in bounds.items()]}

    with ThreadPoolExecutor(max_workers=max(1, len(topics))) as pool:
        print(json.dumps(dict(zip(topics, pool.map(reported, topics), strict=True))), flush=True)


if __name__ == "__main__":
    main()
