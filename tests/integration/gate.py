"""A gate pauses a MERGE after it has read the table's version, until another writer has acted."""

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
    """Once a MERGE has reached the gate, `act` is called. Then the MERGE continues."""

    def __init__(self, folder: Path, act: Callable[[], Any]) -> None:
        self._reached, self._open = folder / "reached", folder / "open"
        self._thread = threading.Thread(target=self._let_through, args=(act,))
        self._thread.start()

    def _let_through(self, act: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not self._reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            act()
        finally:
            self._open.touch()

    def behind(self, source: DataFrame, column: str = "id") -> DataFrame:
        """`source`, whose rows are delivered only once the gate is open. `column` is a STRING column."""
        reached, opened = str(self._reached), str(self._open)

        def wait(value: str) -> str:
            Path(reached).touch()
            deadline = time.monotonic() + WITHIN_S
            while not Path(opened).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            return value

        # One task only: two would occupy both slots, and the other writer's statement could not run.
        return source.coalesce(1).withColumn(column, F.udf(wait)(column))
