"""`ingest plan` and `ingest apply`: show the changes that a contract needs in its table, and make them."""

from __future__ import annotations

import dataclasses
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


@o.verb(app, "checkpoints", "master")
def plan(
    env: o.Environment,
    tables: o.Tables = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="PROJECT", help="Compare with the contracts of this folder instead of the tables (no lake)."),
    ] = None,
    as_json: o.Json = False,
) -> int:
    """Show how a contract differs from its table. Each difference needs nothing, `ingest apply`, or a new table
    (exit 3). It also says which tables Delta in Spark has to write.

    Example, for a pull request: ingest plan --against ../main
    """
    found = _between(env, against, tables) if against else list(_differences(env, tables))
    impossible = any(change.effect == "new table" for each in found for change in each.changes)
    return print_verdict("plan", found, {}, as_json=as_json, as_row=_row, show=_print_planned, code=3 if impossible else 0)


@o.verb(app, "checkpoints", "master")
def apply(
    env: o.Environment,
    tables: o.Tables = None,
    as_json: o.Json = False,
) -> int:
    """Change tables in place to match their contracts. A contract that needs a new table is refused (exit 3).

    Example: ingest apply orders
    """
    from ingest.run import table_lock
    from ingest.run.alter import alter
    from ingest.runtime.errors import IngestError

    contracts = [(each, env.places(each)) for each in env.contracts(tables)]
    for _, places in contracts:
        table_lock.wait_for(places)
    applied: list[tuple[Contract, list[Change]]] = []
    errors: dict[str, IngestError] = {}
    with ExitStack() as stack:
        # Once for all tables, and only if one of them needs it.
        start = cache(lambda: stack.enter_context(env.session("apply", short=True)))
        for contract, places in contracts:
            try:
                applied.append((contract, alter(start, contract, places)))
            except IngestError as error:
                errors[contract.name] = error

    def row(done: tuple[Contract, list[Change]]) -> dict[str, Any]:
        return {"table": done[0].name, "applied": [change.what for change in done[1]]}

    return print_verdict("apply", applied, errors, as_json=as_json, as_row=row, show=_print_applied)


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


def _between(env: o.Environment, against: Path, tables: list[str] | None) -> list[_Planned]:
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
    return [_Planned(name, changes) for name, changes in between(old, env.contracts(tables))]


def _differences(env: o.Environment, tables: list[str] | None) -> Iterator[_Planned]:
    from ingest.run.alter import differences
    from ingest.run.writer_choice import refuse_raising, spark_because

    contracts = env.contracts(tables)
    with nullcontext() if env.is_local else env.session("plan", short=True) as session:
        for contract in contracts:
            refuse_raising(contract)
            places = env.places(contract)
            yield _Planned(contract.name, differences(session, contract, places), spark_because(contract, places))
