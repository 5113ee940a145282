"""A JVM is killed while its run ends: its sockets close first, and the run must still report what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.run import application
from ingest.runtime.errors import RunStopped

pytestmark = pytest.mark.unit


class Dying:
    """A session whose JVM closes its sockets and ends a moment later."""

    def __init__(self, *, dies: bool) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.dies = dies
        self.sparkContext: Any = SimpleNamespace(_gateway=SimpleNamespace(proc=self.process))

    def stop(self) -> None:
        if self.dies:
            self.process.kill()
        raise ConnectionRefusedError(111, "Connection refused")


def test_stopping_spark_while_its_jvm_dies_is_reported_as_jvm_gone() -> None:
    session: Any = Dying(dies=True)
    with pytest.raises(RunStopped) as stopped:
        application._end(session, Path("spark.log"))
    assert (stopped.value.code, stopped.value.exit_code) == ("JVM_GONE", 5)
    assert "signal 9" in stopped.value.found
    application._end(session, Path("spark.log"))  # gone already: nothing to stop


def test_a_running_jvm_that_does_not_answer_is_not_reported_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "JVM_ENDS_WITHIN_S", 0.2)
    session: Any = Dying(dies=False)
    try:
        with pytest.raises(ConnectionRefusedError):
            application._end(session, Path("spark.log"))
    finally:
        session.process.kill()
        session.process.wait()
