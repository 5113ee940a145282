"""Databricks as the runtime: the platform starts Spark and provides Delta, the Kafka connector and Java.

This module only detects the platform. The code that needs to behave differently decides that itself (`spark.start`, `files.is_local`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "DATABRICKS_RUNTIME_VERSION"


def runtime(environment: Mapping[str, str] = os.environ) -> str | None:
    """The version of the current Databricks Runtime (`17.3`), or None elsewhere. The platform sets the variable on every cluster."""
    return environment.get(VARIABLE) or None
