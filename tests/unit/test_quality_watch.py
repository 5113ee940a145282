"""When the checks of a run come."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ingest.contract import Contract
from ingest.places import Places
from ingest.quality import watch as module
from ingest.quality.check import Checked
from ingest.quality.scope import Scope
from ingest.quality.suite import Suite
from ingest.quality.watch import BROKEN_EVERY_S, Watch
from ingest.stream.batch import BatchReport
from tests.unit.test_quality_result import row

pytestmark = pytest.mark.unit

PLACES = Places("/lake", "/checkpoints", "t", "events")
COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}]
CONTRACT = Contract.model_validate(
    {"pipeline": "t", "table": "events", "source": {"topic": "x", "format": "json"}, "columns": COLUMNS, "event_id": ["id"]}
)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def report() -> BatchReport:
    given: dict[str, Any] = dict.fromkeys(BatchReport.__dataclass_fields__, 1)
    return BatchReport(**{**given, "table": PLACES.name})


def test_the_pauses_grow_while_an_expectation_cannot_be_evaluated_and_shrink_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each such check looks at all rows again: once a minute it would be all that the run does."""
    clock = Clock(monkeypatch)
    exception: list[str | None] = [None]
    checked = lambda *_, **__: Checked(PLACES.name, Scope(1, None), (row(success=False, exception=exception[0]),), None, None, 0.0)  # noqa: E731
    monkeypatch.setattr(module, "check", checked)
    watch = Watch({PLACES.name: Suite(CONTRACT, "s.json", "hash", ())}, lambda _: None, lambda *_: None, every_s=60)
    session: Any = None

    def pause() -> float:
        """Seconds until the next check is due, which then is made."""
        watch.saw(report())
        began = clock.now
        while not watch.due(PLACES.name):
            clock.now += 60
        watch.check(session, PLACES, at_work=True)
        return clock.now - began

    assert [pause(), pause()] == [60, 60]
    exception[0] = "Unclosed group"
    assert [pause() for _ in range(9)] == [60, 120, 240, 480, 960, 1920, BROKEN_EVERY_S, BROKEN_EVERY_S, BROKEN_EVERY_S]
    exception[0] = None
    assert [pause(), pause()] == [BROKEN_EVERY_S, 60]
