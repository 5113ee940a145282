"""`ingest totals`: the control totals of tables, compared with the figures of another system."""

from __future__ import annotations

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


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def totals(
    env: o.Environment,
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all with control totals.")] = None,
    figures: o.Figures = None,
    figures_topic: o.FiguresTopic = None,
    version: Annotated[int | None, typer.Option("--version", min=0, help="Version of the target (default: the newest).")] = None,
    as_json: o.Json = False,
) -> int:
    """Add up the control totals of tables, by day and group. Exit 1: a total differs from the figures that were given.
    Only days that the figures contain are judged.

    Example: ingest totals payments --figures provider.csv
    """
    from ingest.runtime.errors import IngestError, InvalidInput
    from ingest.runtime.files import is_local

    contracts = [contract for contract in env.contracts(tables) if contract.control_totals]
    if not contracts:
        raise InvalidInput(
            "TOTALS_TABLE",
            "no contract of the chosen tables names control totals.",
            expected="a contract with `control_totals` (docs/reference/contracts.md).",
            remedy="add it, or name another table.",
        )
    given = figures_by_table(contracts, figures, figures_topic, env)
    found: list[TableTotals] = []
    errors: dict[str, IngestError] = {}
    with nullcontext() if is_local(env.lake) else env.session("totals") as session:
        for contract in contracts:
            try:
                found.append(_added_up(session, contract, env.places(contract), version, given.get(contract.name, {})))
            except IngestError as error:
                errors[contract.name] = error
    differ = any(line.is_found for each in found for line in each.lines)
    return print_verdict("totals", found, errors, as_json=as_json, as_row=as_row, show=print_totals, code=int(differ))


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
