"""Names in a catalog for the Delta tables of a lake. An entry names the path of a table; the catalog decides nothing about its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import spark_text
from ingest.runtime.errors import InvalidInput, Refused
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VOLUMES = ("/Volumes/", "dbfs:/Volumes/", "file:/Volumes/")


@dataclass(frozen=True)
class CatalogEntry:
    """One external table: its quoted name `catalog`.`schema`.`table`, and the path of its Delta table."""

    name: str
    location: str

    @property
    def statement(self) -> str:
        """The SQL statement. It writes nothing to a Delta table that exists."""
        return f"CREATE TABLE IF NOT EXISTS {self.name} USING DELTA LOCATION {spark_text(self.location)}"


def entries(tables: Sequence[Places], catalog: str, schema: str) -> list[CatalogEntry]:
    """The entries of these tables, four for each. Raises InvalidInput VOLUME_HAS_NO_TABLES and CATALOG_NAME_TAKEN."""
    found: dict[str, CatalogEntry] = {}
    for places in tables:
        if places.lake.startswith(VOLUMES):
            raise InvalidInput(
                "VOLUME_HAS_NO_TABLES",
                f"the lake {places.lake} is in a volume.",
                expected="a lake in an external location: Unity Catalog does not allow a table inside a volume.",
                remedy="query the tables by path (delta.`/Volumes/…/target`), or give the pipeline a --lake such as abfss://… or s3://….",
            )
        paths = {"": places.target, "__quarantine": places.quarantine, "__ledger": places.ledger, "__quality": places.quality}
        for suffix, path in paths.items():
            name = ".".join(f"`{part.replace('`', '``')}`" for part in (catalog, schema, f"{places.table}{suffix}"))
            entry = found.setdefault(name.lower(), CatalogEntry(name, path))
            if entry.location != path:
                raise _taken(name, entry.location, path)
    return list(found.values())


def exists(session: SparkSession | None, entry: CatalogEntry) -> bool:
    """Whether the Delta table exists. If it does not, the statement would create one without columns, at a place that is ours."""
    return DeltaLog(files_of(entry.location, session), entry.location).state() is not None


def record(session: SparkSession, entry: CatalogEntry) -> bool:
    """Create the entry, if its table exists. Raises InvalidInput CATALOG_NAME_TAKEN, and Refused CATALOG_REFUSED."""
    if not exists(session, entry):
        return False
    from pyspark.errors import PySparkException

    try:
        session.sql(entry.statement)
        there = str(session.sql(f"DESCRIBE DETAIL {entry.name}").head(1)[0]["location"])
    except PySparkException as error:
        raise Refused(
            "CATALOG_REFUSED",
            f"the catalog did not accept {entry.name}: {str(error).strip().splitlines()[0]}",
            expected="a catalog and a schema that exist, in which this user may create external tables.",
            remedy="correct --catalog and --schema, or let an administrator run the statements that --dry-run prints.",
        ) from error
    if _plain(there) != _plain(entry.location):
        raise _taken(entry.name, there, entry.location)
    return True


def _plain(location: str) -> str:
    """A location to compare: Spark adds file: and slashes, and encodes characters."""
    return unquote(location.removeprefix("file:")).replace("///", "/").rstrip("/")


def _taken(name: str, there: str, wanted: str) -> InvalidInput:
    return InvalidInput(
        "CATALOG_NAME_TAKEN",
        f"{name} is the table at {there}, not the one at {wanted}.",
        expected="one table for each name.",
        remedy="name another --schema (one for each pipeline), or drop the other entry.",
    )
