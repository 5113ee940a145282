"""`ingest totals`: the control totals of tables, compared with the figures of another system."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.cli.check import figures_by_table, total_row, total_text
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ingest.contract.definition import Contract
    from ingest.quality.control_total import TotalLine, Totals
    from ingest.runtime.errors import IngestError
    from ingest.runtime.places import Places


@dataclass(frozen=True)
class TableTotals:
    """The totals of one table at a version of its target."""

    table: str
    version: int
    lines: tuple[TotalLine, ...]


@app.command()
def totals(
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all with control totals.")] = None,
    figures: o.Figures = None,
    figures_topic: o.FiguresTopic = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Version of the target (default: the newest).")] = None,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Add up the control totals of tables, by day and group. Exit 1: a total differs from the figures that were given.
    Only days that the figures contain are judged.

    Example: ingest totals payments --figures provider.csv
    """
    from ingest.contract.definition import load_contracts
    from ingest.runtime import spark
    from ingest.runtime.errors import IngestError, InvalidInput, most_severe
    from ingest.runtime.files import is_local
    from ingest.runtime.places import Places, spark_log

    contracts = [contract for contract in load_contracts(project, tables or []) if contract.control_totals]
    if not contracts:
        raise InvalidInput(
            "TOTALS_TABLE",
            "no contract of the chosen tables names control totals.",
            expected="a contract with `control_totals` (docs/reference/contracts.md).",
            remedy="add it, or name another table.",
        )
    given = figures_by_table(contracts, figures, figures_topic, bootstrap_servers)
    found: list[TableTotals] = []
    errors: dict[str, IngestError] = {}
    with nullcontext() if is_local(lake) else spark.session(master, spark_log(lake, "totals")) as session:
        for contract in contracts:
            places = Places(lake, checkpoints, contract.pipeline, contract.table)
            try:
                found.append(_added_up(session, contract, places, version, given.get(contract.name, {})))
            except IngestError as error:
                errors[contract.name] = error
    differ = [each for each in found if any(line.is_found for line in each.lines)]
    print_verdict("totals", found, errors, ok=not (errors or differ), as_json=as_json, as_row=as_row, show=print_totals)
    if errors or differ:
        sys.exit(most_severe([*(error.exit_code for error in errors.values()), *(1 for _ in differ)]))


def _added_up(
    session: SparkSession | None, contract: Contract, places: Places, version: int | None, figures: Mapping[str, Totals]
) -> TableTotals:
    """One table's totals. Raises InvalidInput TABLE_MISSING, VERSION_UNKNOWN, and Unreadable."""
    from ingest.delta.delta_log import DeltaLog
    from ingest.delta.delta_sql import At, asked
    from ingest.delta.log_errors import table_missing
    from ingest.quality.control_total import control_totals, lines
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import files_of

    newest = DeltaLog(files_of(places.lake, session), places.target).newest()
    if newest < 0:
        raise table_missing(contract.name, places.target)
    if version is not None and version > newest:
        raise InvalidInput(
            "VERSION_UNKNOWN", f"{contract.name} has no version {version}.", expected=f"0 to {newest}.", remedy="correct --version."
        )
    at = At(places.target, newest if version is None else version)
    ours = asked(places.target, session, lambda engine: control_totals(engine, contract, at))
    return TableTotals(contract.name, at.version or 0, tuple(lines(contract, ours, figures)))


def as_row(found: TableTotals) -> dict[str, Any]:
    """The table's entry in the JSON document."""
    ok = not any(line.is_found for line in found.lines)
    return {"table": found.table, "ok": ok, "version": found.version, "totals": [total_row(each) for each in found.lines]}


def print_totals(found: TableTotals) -> None:
    """Print each figure as one line; `!` marks a difference."""
    judged = [line for line in found.lines if line.verdict != "not judged"]
    wrong = sum(line.is_found for line in judged)
    verdict = (
        "no figures were given" if not judged else f"{wrong} of {len(judged)} figures DIFFER" if wrong else f"{len(judged)} figures agree"
    )
    out_line(f"{found.table}, version {found.version}: {verdict}")
    for line in found.lines:
        out_line(f"  {'!' if line.is_found else ' '} {total_text(line)}")
