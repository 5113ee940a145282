"""A relay in its own process, which can kill or stop itself at a step. Run as `python -m tests.database.relay_instance`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ingest.delivery.database.database import connect
from ingest.delivery.outbox.relay import Relay
from tests.child import Child, stop_and_steps

# The steps of a batch, in order.
STEPS = ("leads", "read", "begun", "flushed", "offsets_sent", "committed", "marked")


class RelayInstance(Child):
    """Controls the process from the test."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        super().__init__("tests.database.relay_instance", settings, log)


def _main(settings: dict[str, Any]) -> None:
    stop, strike = stop_and_steps(settings)

    def on_step(step: str) -> None:
        if step == "leads":
            print("leads", flush=True)
        strike(step)

    engine = connect(settings["url"])
    with Relay(engine, settings["servers"], topic=settings["topic"], batch=settings["batch"], on_step=on_step) as relay:
        counts = relay.run(stop=stop)
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
