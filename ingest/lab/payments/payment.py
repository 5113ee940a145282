"""The demo's payments: which there are, and what both chains know about them."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Engine

from ingest.contract.event_id import derive
from ingest.delivery.database.database import connect

OUTBOX_TOPIC: Final = "payments.outbox"
CHECKED_TOPIC: Final = "payments.checked"
NAIVE_TOPIC: Final = "payments.naive"
PARTITIONS: Final = 2
_ACCOUNTS: Final = 50

Step = Callable[[str], None]
# A stage gets its settings, an engine, `on_step`, and `stop`.
Stage: TypeAlias = "Callable[[StageSettings, Engine, Step, Callable[[], bool]], None]"


@dataclass(frozen=True)
class Payment:
    """A payment of 1.00 to 1,000.00 from one of 50 accounts."""

    payment_id: str
    account: str
    amount_cents: int

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StageSettings:
    """What a stage's process needs to know. It kills itself when it has reached `at` for the `nth` time ('' for never)."""

    stage: str
    database_url: str
    servers: str
    service_url: str
    payments: int
    seed: int
    at: str = ""
    nth: int = 0

    @classmethod
    def read(cls, text: str) -> StageSettings:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))

    def killer(self) -> Step:
        """`on_step` for this stage: SIGKILL of its own process at the chosen step."""
        left = [self.nth]

        def step(name: str) -> None:
            if name == self.at:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        return step


def payment(number: int, seed: int) -> Payment:
    """The payment of this number. The same number always gives the same payment."""
    chance = random.Random(f"{seed}-{number}")
    return Payment(derive("demo payment", seed, number), f"account-{chance.randrange(_ACCOUNTS):02}", chance.randrange(100, 100_001))


def run_stage(stages: Mapping[str, Stage]) -> None:
    """The main function of a stage's process: run the stage that the first argument names, until SIGTERM."""
    given, stopping = StageSettings.read(sys.argv[1]), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    engine = connect(given.database_url)
    try:
        stages[given.stage](given, engine, given.killer(), stopping.is_set)
    finally:
        engine.dispose()
