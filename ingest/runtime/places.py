"""Where everything of one table lives (docs/reference/guarantees.md, places)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import is_local, local_path


def absolute(location: str) -> str:
    """A location as Spark must be given it: local ones absolute, since the JVM may have another working folder.

    Raises InvalidInput LOCATION_ENCODED.
    """
    if not is_local(location):
        return location.rstrip("/")
    path = str(local_path(location).resolve())
    if (code := re.search("%[0-9A-Fa-f]{2}", path)) is not None:
        raise InvalidInput(
            "LOCATION_ENCODED",
            f"{path} is a folder with {code[0]} in its name.",
            expected="a path without such a sequence: it is a character written for a URL, and deltalake would look for the files of a "
            "table where that character stands.",
            remedy=f"name another folder, or rename this one ({unquote(path)} would do).",
        )
    return path


@dataclass(frozen=True)
class Places:
    """The Delta tables and the checkpoints of one contract's table."""

    lake: str
    checkpoints: str
    pipeline: str
    table: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake", absolute(self.lake))
        object.__setattr__(self, "checkpoints", absolute(self.checkpoints))

    @property
    def name(self) -> str:
        """`pipeline.table`, as it is shown."""
        return f"{self.pipeline}.{self.table}"

    @property
    def root(self) -> str:
        """The folder of the table's Delta tables."""
        return f"{self.lake}/{self.pipeline}/{self.table}"

    @property
    def target(self) -> str:
        """The Delta table that readers query."""
        return f"{self.root}/target"

    @property
    def quarantine(self) -> str:
        """The Delta table of records that did not become rows."""
        return f"{self.root}/quarantine"

    @property
    def ledger(self) -> str:
        """The Delta table with one row a batch and partition."""
        return f"{self.root}/ledger"

    @property
    def quality(self) -> str:
        """The Delta table of validation results, one row an expectation and validation run."""
        return f"{self.root}/quality"

    @property
    def checkpoint(self) -> str:
        """The folder of the table's checkpoints, one an epoch."""
        return f"{self.checkpoints}/{self.pipeline}/{self.table}"

    def checkpoint_of(self, epoch: int) -> str:
        """Spark's streaming checkpoint of one epoch."""
        return f"{self.checkpoint}/{epoch}"


def refuse_nested(places: Places) -> None:
    """Raises InvalidInput PLACES_NESTED where the checkpoints' folder holds the tables, or lies among them.

    Whoever deletes the checkpoints, which costs nothing, must not delete tables.
    """
    tables, checkpoint = f"{places.root}/", f"{places.checkpoint}/"
    if tables.startswith(checkpoint) or checkpoint.startswith(tables):
        raise InvalidInput(
            "PLACES_NESTED",
            f"the tables of {places.name} are in {places.root}, its checkpoints in {places.checkpoint}: one of them holds the other.",
            expected="folders apart: checkpoints may be deleted at any time, tables never.",
            remedy="name another folder with --checkpoints.",
        )


def pages_folder(places: Places) -> Path:
    """Where the Data Docs of a table go: under a local lake, else in the working folder, since GX writes them as plain files."""
    parent = local_path(places.lake) / "docs" if is_local(places.lake) else Path("data_docs").resolve()
    return parent / places.pipeline / places.table


def spark_log(lake: str, verb: str) -> Path:
    """Where the output of Spark goes in one run of a verb."""
    return log_folder(lake) / f"spark-{verb}-{time.strftime('%Y%m%dT%H%M%S')}.log"


def log_folder(lake: str) -> Path:
    """Where the output of Spark goes: under a local lake, else in the working folder."""
    return local_path(absolute(lake)) / "logs" if is_local(lake) else Path("logs").resolve()
