"""The choice of who writes the Delta tables. writer_choice.py decides for `auto`."""

from __future__ import annotations

import os
from enum import StrEnum

from ingest.runtime.errors import InvalidInput

VARIABLE = "INGEST_WRITER"


class Writer(StrEnum):
    """Who writes the Delta tables. `auto`: the workers directly if the tables are fit for it, otherwise Delta in Spark."""

    AUTO = "auto"
    DIRECT = "direct"
    SPARK = "spark"


def writer_setting() -> Writer:
    """INGEST_WRITER, for commands without the option --writer. Raises InvalidInput WRITER_INVALID."""
    text = os.environ.get(VARIABLE) or Writer.AUTO
    try:
        return Writer(text)
    except ValueError as error:
        raise InvalidInput(
            "WRITER_INVALID",
            f"{VARIABLE}={text!r}.",
            expected=f"one of {', '.join(Writer)}.",
            remedy=f"correct or unset {VARIABLE}.",
        ) from error
