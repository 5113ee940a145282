"""Holds a MERGE after it has read the table's version, until somebody else has acted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WITHIN_S = 300.0


class Gate:
    """`somebody` acts once a MERGE has reached the gate, then it may go on."""

    def __init__(self, folder: Path, somebody: Callable[[], Any]) -> None:
        self._reached, self._open = folder / "reached", folder / "open"
        self._thread = threading.Thread(target=self._let_through, args=(somebody,))
        self._thread.start()

    def _let_through(self, somebody: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not self._reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            somebody()
        finally:
            self._open.touch()

    def behind(self, source: DataFrame, column: str = "id") -> DataFrame:
        """`source`, whose rows come when the gate is open; `column` is a text."""
        reached, opened = str(self._reached), str(self._open)

        def wait(value: str) -> str:
            Path(reached).touch()
            deadline = time.monotonic() + WITHIN_S
            while not Path(opened).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            return value

        # One task only: two would leave no room for the statement of somebody else.
        return source.coalesce(1).withColumn(column, F.udf(wait)(column))
