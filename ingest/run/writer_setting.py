"""The choice of who writes the Delta tables. writer_choice.py decides for `auto`."""

from __future__ import annotations

from enum import StrEnum


class Writer(StrEnum):
    """Who writes the Delta tables. `auto`: the workers directly if the tables are fit for it, otherwise Delta in Spark."""

    AUTO = "auto"
    DIRECT = "direct"
    SPARK = "spark"
