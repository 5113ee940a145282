"""Databricks as the place to run: the platform has started Spark and brings Delta, Kafka's connector and Java itself.

What follows from that is decided where it matters (`spark.start`, `files.is_local`); here is only how to tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "DATABRICKS_RUNTIME_VERSION"


def runtime(environment: Mapping[str, str] = os.environ) -> str | None:
    """The Databricks Runtime at hand (`17.3`), or None anywhere else; the platform sets the variable on every cluster."""
    return environment.get(VARIABLE) or None
