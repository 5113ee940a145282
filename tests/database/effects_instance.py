"""An effect consumer in its own process, which can kill or stop itself at a step. Run as `python -m tests.database.effects_instance`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ingest.delivery.database.database import connect
from ingest.delivery.effects import EffectConsumer, Effects
from tests.child import Child, stop_and_steps
from tests.database.effects_scene import http_api

# The steps of a record, in order: taken, committed in SENDING, answered, outcome committed, offset committed.
STEPS = ("gathered", "sending", "called", "recorded", "acknowledged")


class EffectsInstance(Child):
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__("tests.database.effects_instance", settings, log)


def _main(settings: dict[str, Any]) -> None:
    stop, on_step = stop_and_steps(settings)

    api = http_api(settings["api"], settings.get("offers", "look-up"), settle_s=settings.get("settle_s", 0.2))
    effects = Effects("charge", api, connect(settings["url"]), lease_s=settings.get("lease_s", 2.0), backoff_s=0.05, on_step=on_step)
    consumer = EffectConsumer(
        effects,
        settings["topic"],
        settings["topic"],
        settings["servers"],
        event_id=lambda record: json.loads(record.value)["event"],
        request_of=lambda record: record.value,
        workers=settings.get("workers", 4),
        records=settings.get("records", 20),
        instance=settings.get("instance"),
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    with consumer:
        print("started", flush=True)
        counts = consumer.run(stop=stop)
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
