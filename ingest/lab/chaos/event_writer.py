"""The producer of a chaos run: sends transactions without a pause until SIGTERM.

`python -m ingest.lab.chaos.event_writer SETTINGS NUMBER MANIFEST`.

All writers of a round share one transactional id, so the next writer ends the transaction that a killed one left open.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.contract.definition import load_contracts
from ingest.lab.chaos.chaos_events import Events, bodies
from ingest.lab.samples.sample_producer import produce_sample
from ingest.runtime.errors import IngestError

TRANSACTION_RECORDS = 1000
# Practically endless: no writer reaches this within a round.
EVENTS = 10**9
POISON = EVENTS // 400
DUPLICATE_SHARE = 0.08
ABORTED_SHARE = 0.1
# A killed or paused broker is back within seconds; by default Kafka's clients would wait for minutes.
COMMIT_TIMEOUT_S = 20.0
KAFKA = {"request_timeout_ms": 15_000, "delivery_timeout_ms": 18_000, "max_block_ms": 15_000}


@dataclass(frozen=True)
class Settings:
    """The settings that all writers of a round share; `rate` is records per second, 0 for as many as it can.

    `topics` are those of each contract, by its name.
    """

    bootstrap_servers: str
    transactional_id: str
    project: str
    samples: str | None
    seed: str
    rate: int
    topics: Mapping[str, Sequence[str]]

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


class _Stop(Exception):
    """Raised between two transactions to end the writer."""


def write(settings: Settings, number: int, manifest: Path) -> None:
    """Write transactions until SIGTERM. Raises the errors of `produce_sample`."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    contracts = load_contracts(Path(settings.project))
    samples = Path(settings.samples) if settings.samples else None
    pools = [bodies(contract, settings.seed, samples, settings.topics[contract.name]) for contract in contracts]
    began = time.monotonic()

    def progress(records: int) -> None:
        if settings.rate:
            ahead_s = records / settings.rate - (time.monotonic() - began)
            end = time.monotonic() + ahead_s
            while not asked and (left := end - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
        if asked:
            raise _Stop

    options: dict[str, Any] = {**KAFKA}
    try:
        produce_sample(
            settings.bootstrap_servers,
            events=EVENTS,
            poison=POISON,
            seed=number,
            manifest=manifest,
            duplicate_share=DUPLICATE_SHARE,
            aborted_share=ABORTED_SHARE,
            transaction_records=TRANSACTION_RECORDS,
            topics={topic: topic for pool in pools for topic in pool.topics},
            transactional_id=settings.transactional_id,
            kafka_options=options,
            commit_timeout_s=COMMIT_TIMEOUT_S,
            progress=progress,
            source_of=lambda name: Events(pools, settings.seed, name),
        )
    except _Stop:
        return


if __name__ == "__main__":
    try:
        write(Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), int(sys.argv[2]), Path(sys.argv[3]))
    except IngestError as error:
        print(f"ingest: {error.code}: {error.found}", flush=True)
        sys.exit(error.exit_code)
