"""The locations of everything that belongs to one table (docs/reference/guarantees.md, places)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ingest.runtime import databricks
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import is_local, local_path


def absolute(location: str) -> str:
    """A location in the form that Spark needs: a local path is absolute, because the JVM may have another working folder.

    On Databricks it keeps its scheme, because a path without one is in the platform's storage there.
    """
    if not is_local(location):
        return location.rstrip("/")
    path = str(local_path(location).resolve())
    return path if databricks.runtime() is None else f"file:{path}"


def of_tables(location: str) -> str:
    """`absolute`, for a folder that contains Delta tables. Raises InvalidInput LOCATION_ENCODED and LOCATION_CHARACTER."""
    if not is_local(location):
        return absolute(location)
    path = str(local_path(location).resolve())
    if (code := re.search("%[0-9A-Fa-f]{2}", path)) is not None:
        raise InvalidInput(
            "LOCATION_ENCODED",
            f"{path} is a folder with {code[0]} in its name.",
            expected="a path without such a sequence: it is the URL encoding of a character, and deltalake would look for the table's "
            "files in a folder with that character in its name.",
            remedy=f"name another folder, or rename this one ({unquote(path)} would work).",
        )
    if (found := re.search(r"[`\\\x00-\x1f\x7f]", path)) is not None:
        raise InvalidInput(
            "LOCATION_CHARACTER",
            f"{path!r} is a folder with {found[0]!r} in its name.",
            expected="a path without backticks, backslashes and control characters: Delta or deltalake would look for another table.",
            remedy="name another folder, or rename this one.",
        )
    return absolute(location)


@dataclass(frozen=True)
class Places:
    """The Delta tables and the checkpoints of one contract's table."""

    lake: str
    checkpoints: str
    pipeline: str
    table: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "lake", of_tables(self.lake))
        object.__setattr__(self, "checkpoints", absolute(self.checkpoints))

    @property
    def name(self) -> str:
        """`pipeline.table`, the name for display."""
        return f"{self.pipeline}.{self.table}"

    @property
    def root(self) -> str:
        """The folder that contains the table's Delta tables."""
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
        """The Delta table of what each statement read, added and removed."""
        return f"{self.root}/ledger"

    @property
    def quality(self) -> str:
        """The Delta table of validation results, one row per expectation and validation run."""
        return f"{self.root}/quality"

    @property
    def audited(self) -> str:
        """The folder of numbered files that say which version of the target is audited."""
        return f"{self.root}/audited"

    @property
    def checkpoint(self) -> str:
        """The folder of the table's checkpoints, one per epoch."""
        return f"{self.checkpoints}/{self.pipeline}/{self.table}"

    def checkpoint_of(self, epoch: int) -> str:
        """Spark's streaming checkpoint of one epoch."""
        return f"{self.checkpoint}/{epoch}"


def refuse_nested(places: Places) -> None:
    """Raises InvalidInput PLACES_NESTED if the checkpoint folder contains the tables or lies inside their folder.

    Checkpoints may be deleted without loss, and that must never delete a table.
    """
    tables, checkpoint = f"{places.root}/", f"{places.checkpoint}/"
    if tables.startswith(checkpoint) or checkpoint.startswith(tables):
        raise InvalidInput(
            "PLACES_NESTED",
            f"the tables of {places.name} are in {places.root}, its checkpoints in {places.checkpoint}: one of them contains the other.",
            expected="separate folders: checkpoints may be deleted at any time, tables never.",
            remedy="name another folder with --checkpoints.",
        )


def pages_folder(places: Places) -> Path:
    """The folder for a table's Data Docs: under a local lake, else in the working folder, because GX writes plain files."""
    parent = local_path(places.lake) / "docs" if is_local(places.lake) else Path("data_docs").resolve()
    return parent / places.pipeline / places.table


def proofs_folder(places: Places) -> Path:
    """The folder of a table's proof files: under a local lake, else in the working folder, because a chain needs a disk's hard links."""
    parent = local_path(places.lake) / "proofs" if is_local(places.lake) else Path("proofs").resolve()
    return parent / places.pipeline / places.table


def spark_log(lake: str, verb: str) -> Path:
    """The file for Spark's output in one run of a command."""
    return log_folder(lake) / f"spark-{verb}-{time.strftime('%Y%m%dT%H%M%S')}.log"


def log_folder(lake: str) -> Path:
    """The folder for Spark's output: under a local lake, else in the working folder. Raises as `of_tables`."""
    return local_path(of_tables(lake)) / "logs" if is_local(lake) else Path("logs").resolve()
