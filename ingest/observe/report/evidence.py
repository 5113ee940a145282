"""What others found out about a table: the validation runs of `ingest check`, and the newest proof file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ingest.observe.report.ledger_figures import iso
from ingest.observe.report.open_tables import OpenTables
from ingest.runtime import numbered_files
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places, pages_folder, proofs_folder
from ingest.verify.proof.proof_file import proof_of, sha256, utc

RUNS_SHOWN = 50
RUNS = f"""\
SELECT run_id, max(date_part('epoch', run_at)) AS at, max(run_scope) AS scope, max(version_to) AS version, count(*) AS expectations,
       sum(CASE WHEN success THEN 0 ELSE 1 END) AS failed, sum(CASE WHEN success OR severity <> 'critical' THEN 0 ELSE 1 END) AS critical,
       sum(CASE WHEN exception IS NULL THEN 0 ELSE 1 END) AS not_evaluated, max(page) AS page
FROM {{quality}} GROUP BY run_id ORDER BY at DESC, run_id DESC LIMIT {RUNS_SHOWN}"""


@dataclass(frozen=True)
class QualityRun:
    """A validation run up to a target version: its expectations, how many failed, and how many of these are critical.

    `scope` is `whole` or `new`. `not_evaluated` expectations count as failed. `page` is the run's page in the Data Docs, as a path below
    their folder; None if the page does not exist (any more).
    """

    run_id: str
    at: str
    scope: str
    version: int
    expectations: int
    failed: int
    critical: int
    not_evaluated: int
    page: str | None


@dataclass(frozen=True)
class LastProof:
    """The newest proof file of a table. `ok` is None if it is no proof (any more); `sha256` is empty if this account may not read it.

    `chained`: the file before it is the one that it names. Files further back are the business of `ingest proof check`.
    """

    number: int
    made_at: str
    ok: bool | None
    path: str
    sha256: str
    chained: bool


def quality_runs(tables: OpenTables, places: Places) -> tuple[QualityRun, ...]:
    """The newest validation runs, newest first. Raises Unreadable."""
    found = tables.ask(RUNS) if "quality" in tables else []
    folder = pages_folder(places).resolve()
    return tuple(QualityRun(**{**row, "at": iso(row["at"]), "page": _below(folder, row["page"])}) for row in found)


def docs_index(places: Places) -> Path | None:
    """The index page of the table's Data Docs; None if there is none."""
    index = pages_folder(places) / "index.html"
    return index if os.access(index, os.R_OK) else None


def last_proof(places: Places) -> LastProof | None:
    """The newest file that `ingest proof` wrote; None if there is none."""
    folder = str(proofs_folder(places))
    number = max(numbered_files.numbers(LocalFiles(), folder), default=0)
    if not number:
        return None
    path = numbered_files.path_of(folder, number)
    try:
        data = Path(path).read_bytes()
        former = LocalFiles().read(numbered_files.path_of(folder, number - 1))
    except OSError:  # it may belong to another account
        return LastProof(number, "", None, path, "", False)
    if (proof := proof_of(data)) is None:
        return LastProof(number, "", None, path, sha256(data), False)
    chained = proof.number == number and proof.previous == (None if former is None else sha256(former))
    return LastProof(number, utc(proof.made_at), proof.ok, path, sha256(data), chained)


def _below(folder: Path, page: str | None) -> str | None:
    """The page as a path below the folder. The table stores it as it was when the lake was in another folder, perhaps."""
    if page is None:
        return None
    parts = Path(page).parts
    inside = Path(*parts[parts.index("validations") :]) if "validations" in parts else Path(page)
    there = (folder / inside).resolve()
    return there.relative_to(folder).as_posix() if there.is_relative_to(folder) and os.access(there, os.R_OK) else None
