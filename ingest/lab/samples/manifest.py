"""The producer's own log: JSON lines against which an independent judge can check a finished run.

Lines, by `event`:
- `sample`: the first line. `version`, `seed`, `topics` (partition count by topic) and `hash` (how values are hashed).
- `begin`: before the first record of a transaction is sent. `txn`, `attempt`, `intent` (commit or abort), `topics` and `poison`.
  `topics` has three parallel lists per topic, in the order sent: `ids`, `hashes`, `partitions`. U+001F separates the parts of an id of
  several columns. `poison` is a list of `{kind, topic, partition, id, hash}`; id is null if none can be read, hash for a tombstone.
- `committed`, `aborted`, `unknown`: the outcome of that attempt; `poison_at`: `[kind, topic, partition, offset]` as delivered.
- `done`: the last line, the summary.

A `begin` without an outcome means that the producer died: the outcome is unknown. Every line is on disk (fsync) before the producer
continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from ingest.lab.samples.mix import SampleTransaction
from ingest.runtime.errors import InvalidInput

Ending = Literal["committed", "aborted", "unknown"]
PoisonAt = tuple[str, str, int, int]


class Manifest(AbstractContextManager["Manifest"]):
    """An open manifest file. Raises InvalidInput (MANIFEST_EXISTS) if the file exists and is not empty."""

    def __init__(self, path: Path) -> None:
        if path.exists() and path.stat().st_size:
            raise InvalidInput(
                "MANIFEST_EXISTS",
                f"{path} contains the manifest of another run.",
                expected="a new path for each run of the producer.",
                remedy="choose another --manifest or delete the file.",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def sample(self, *, seed: int, topics: Mapping[str, int]) -> None:
        """Write the first line: the seed and the topics."""
        self._write({"event": "sample", "version": 1, "seed": seed, "topics": dict(topics), "hash": "blake2b, 8 bytes, hex"})

    def begin(self, transaction: SampleTransaction, attempt: int) -> None:
        """Record a transaction before any of it is sent."""
        topics: dict[str, dict[str, list[Any]]] = {}
        poison: list[dict[str, Any]] = []
        for topic, partition, _, value, event_id, kind in transaction.records:
            digest = None if value is None else blake2b(value, digest_size=8).hexdigest()
            if kind is not None:
                poison.append({"kind": kind, "topic": topic, "partition": partition, "id": event_id, "hash": digest})
                continue
            lists = topics.get(topic)
            if lists is None:
                lists = topics[topic] = {"ids": [], "hashes": [], "partitions": []}
            lists["ids"].append(event_id)
            lists["hashes"].append(digest)
            lists["partitions"].append(partition)
        self._write(
            {
                "event": "begin",
                "txn": transaction.number,
                "attempt": attempt,
                "intent": transaction.intent,
                "topics": topics,
                "poison": poison,
            }
        )

    def end(self, transaction: SampleTransaction, attempt: int, ending: Ending, poison_at: Iterable[PoisonAt] = ()) -> None:
        """Record the outcome, after the broker has answered or the wait has timed out."""
        self._write({"event": ending, "txn": transaction.number, "attempt": attempt, "poison_at": list(poison_at)})

    def done(self, summary: Mapping[str, Any]) -> None:
        """Write the last line of a producer that sent everything."""
        self._write({"event": "done", **summary})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
