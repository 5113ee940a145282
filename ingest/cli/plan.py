"""`ingest plan` and `ingest apply`: show the changes that a contract needs in its table, and make them."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ingest.contract.definition import Contract
    from ingest.delta.contract_change import Change

Tables = Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all of tables/.")]


@app.command()
def plan(
    tables: Tables = None,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="PROJECT", help="Compare with the contracts of this folder instead of the tables (no lake)."),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Show how a contract differs from its table. Each difference needs nothing, `ingest apply`, or a new table
    (exit 3). It also says which tables Delta in Spark has to write.

    Example, for a pull request: ingest plan --against ../main
    """
    found = _between(against, project, tables) if against else list(_differences(project, tables, lake, checkpoints, master))
    impossible = any(change.effect == "new table" for each in found for change in each.changes)
    print_verdict("plan", found, {}, ok=not impossible, as_json=as_json, as_row=_row, show=_print_planned)
    if impossible:
        sys.exit(3)


@app.command()
def apply(
    tables: Tables = None,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Change tables in place to match their contracts. A contract that needs a new table is refused (exit 3).

    Example: ingest apply orders
    """
    from ingest.contract.definition import load_contracts
    from ingest.run import table_lock
    from ingest.run.alter import alter
    from ingest.runtime import spark
    from ingest.runtime.errors import IngestError, most_severe
    from ingest.runtime.places import Places, spark_log

    contracts = [(each, Places(lake, checkpoints, each.pipeline, each.table)) for each in load_contracts(project, tables or [])]
    for _, places in contracts:
        table_lock.wait_for(places)
    applied: list[tuple[Contract, list[Change]]] = []
    errors: dict[str, IngestError] = {}
    with ExitStack() as stack:
        # Once for all tables, and only if one of them needs it.
        start = cache(lambda: stack.enter_context(spark.session(master, spark_log(lake, "apply"), short=True)))
        for contract, places in contracts:
            try:
                applied.append((contract, alter(start, contract, places)))
            except IngestError as error:
                errors[contract.name] = error

    def row(done: tuple[Contract, list[Change]]) -> dict[str, Any]:
        return {"table": done[0].name, "applied": [change.what for change in done[1]]}

    print_verdict("apply", applied, errors, ok=not errors, as_json=as_json, as_row=row, show=_print_applied)
    if errors:
        sys.exit(most_severe([failed.exit_code for failed in errors.values()]))


def _print_applied(done: tuple[Contract, list[Change]]) -> None:
    name, changes = done[0].name, done[1]
    for what in (*(change.what for change in changes), "done" if changes else "nothing to apply"):
        out_line(f"{name}: {what}")


@dataclass(frozen=True)
class _Planned:
    """The differences of a table. `by_spark` says why Delta in Spark has to write it, None if the workers can."""

    name: str
    changes: Sequence[Change]
    by_spark: str | None = None


def _row(found: _Planned) -> dict[str, Any]:
    changes = [dataclasses.asdict(change) for change in found.changes]
    return {"table": found.name, "changes": changes, "writer": "spark" if found.by_spark else "direct", "writer_because": found.by_spark}


def _print_planned(found: _Planned) -> None:
    """Print one line per difference."""
    if not found.changes:
        out_line(f"{found.name}: the table matches its contract")
    for change in found.changes:
        needs = {"next batch": "from the next batch on", "apply": "ingest apply", "new table": "A NEW TABLE"}[change.effect]
        optional = "" if change.required or change.effect != "apply" else " (when convenient)"
        out_line(f"{found.name}: {change.what}  →  {needs}{optional}")
    if found.by_spark:
        out_line(f"{found.name}: Delta in Spark writes: {found.by_spark}")


def _between(against: Path, project: Path, tables: list[str] | None) -> list[_Planned]:
    from ingest.contract.definition import load_contracts
    from ingest.delta.contract_change import between
    from ingest.runtime.errors import InvalidInput

    try:
        base = load_contracts(against)
    except InvalidInput as error:
        if error.code != "CONTRACT_NOT_FOUND" or not against.is_dir():
            raise
        base = ()  # the pull request that adds the first contract
    old = [each for each in base if not tables or {each.table, each.name} & {*tables}]
    return [_Planned(name, changes) for name, changes in between(old, load_contracts(project, tables or []))]


def _differences(project: Path, tables: list[str] | None, lake: str, checkpoints: str, master: str) -> Iterator[_Planned]:
    from ingest.contract.definition import load_contracts
    from ingest.run.alter import differences
    from ingest.run.writer_choice import refuse_raising, spark_because
    from ingest.runtime import spark
    from ingest.runtime.files import is_local
    from ingest.runtime.places import Places, spark_log

    contracts = load_contracts(project, tables or [])
    needed = not (is_local(lake) and is_local(checkpoints))
    with spark.session(master, spark_log(lake, "plan"), short=True) if needed else nullcontext() as session:
        for contract in contracts:
            refuse_raising(contract)
            places = Places(lake, checkpoints, contract.pipeline, contract.table)
            yield _Planned(contract.name, differences(session, contract, places), spark_because(contract, places))
