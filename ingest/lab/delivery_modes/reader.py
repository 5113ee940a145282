"""A read_committed reader in a separate process: `python -m ingest.lab.delivery_modes.reader <servers> <topic>`.

It prints one JSON line per paced load when it has read all of its records: percentiles of the time from due to read. The key
`<series>/<records>` identifies the load and its number of records. It reads until SIGTERM.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

from kafka import KafkaConsumer, TopicPartition

from ingest.lab.delivery_modes.load import PARTITIONS, due_ns


def read(servers: str, topic: str, stopping: threading.Event) -> None:
    """Read and print until `stopping` is set; see the module docstring."""
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "metrics_enabled": False, "fetch_max_wait_ms": 100}
    took_ms: dict[bytes, list[float]] = defaultdict(list)
    with KafkaConsumer(bootstrap_servers=servers, **options) as consumer:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        consumer.poll(0)
        print("ready", flush=True)
        while not stopping.is_set():
            found = consumer.poll(timeout_ms=100, max_records=5_000)
            now_ns = time.monotonic_ns()
            for records in found.values():
                for record in records:
                    if record.key is not None:
                        took_ms[record.key].append((now_ns - due_ns(record.value)) / 1e6)
            for key in [key for key, taken in took_ms.items() if len(taken) >= int(key.partition(b"/")[2])]:
                print(json.dumps({"key": key.decode(), **summary(took_ms.pop(key))}), flush=True)


def summary(took_ms: Sequence[float]) -> dict[str, float]:
    """Count, nearest-rank percentiles and maximum of `took_ms`, which must not be empty."""
    ordered = sorted(took_ms)

    def rank(part: float) -> float:
        return round(ordered[max(math.ceil(part * len(ordered)) - 1, 0)], 3)

    return {"records": len(ordered), "p50_ms": rank(0.5), "p95_ms": rank(0.95), "p99_ms": rank(0.99), "max_ms": round(ordered[-1], 3)}


def _main() -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    read(sys.argv[1], sys.argv[2], stopping)


if __name__ == "__main__":
    _main()
