"""The producer's own record of what it did: JSON lines that an outside judge can check a finished run against.

Lines, by `event`:
- `sample`: first; `version`, `seed`, `topics` (partitions by topic) and `hash`: how values are hashed.
- `begin`: before the first record of a transaction is sent. `txn`, `attempt`, `intent` (commit or abort), `topics`: by topic
  the parallel lists `ids` (the parts of an id of several columns with U+001F between them), `hashes`, `partitions`, in the
  order sent; `poison`: a list of
  `{kind, topic, partition, id, hash}`, id null where none can be read, hash null for a tombstone.
- `committed`, `aborted`, `unknown`: how that attempt ended; `poison_at`: `[kind, topic, partition, offset]` as delivered.
- `done`: last, the summary. A begin without an end means that the producer died: its outcome is unknown.

Every line is on disk (fsync) before the producer goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ingest.lab.samples.mix import SampleTransaction
from ingest.runtime.errors import InvalidInput

Ending = Literal["committed", "aborted", "unknown"]
PoisonAt = tuple[str, str, int, int]


class Manifest:
    """An open manifest file. Raises InvalidInput (MANIFEST_EXISTS) when the path holds something already."""

    def __init__(self, path: Path) -> None:
        if path.exists() and path.stat().st_size:
            raise InvalidInput(
                "MANIFEST_EXISTS",
                f"{path} holds the manifest of another run.",
                expected="a path without a file, one for each run of the producer.",
                remedy="choose another --manifest or delete the file.",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def sample(self, *, seed: int, topics: Mapping[str, int]) -> None:
        """The first line: what the rest is about."""
        self._write({"event": "sample", "version": 1, "seed": seed, "topics": dict(topics), "hash": "blake2b, 8 bytes, hex"})

    def begin(self, transaction: SampleTransaction, attempt: int) -> None:
        """Before anything of the transaction is sent."""
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
        """After the broker answered, or did not."""
        self._write({"event": ending, "txn": transaction.number, "attempt": attempt, "poison_at": list(poison_at)})

    def done(self, summary: Mapping[str, Any]) -> None:
        """The last line, of a producer that came to its end."""
        self._write({"event": "done", **summary})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
