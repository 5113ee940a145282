"""`ingest audited`: the version of each table whose checks passed, and its release after a hold."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.quality.audited_version import AuditState

audited = typer.Typer(name="audited", help="Show the version of each table whose checks passed, and release it.", no_args_is_help=True)
app.add_typer(audited)


@dataclass(frozen=True)
class TableAudited:
    """The audited version of a table. `unreadable` says why nobody can read it any more, `view` makes it a view in Spark."""

    table: str
    newest: int
    state: AuditState
    unreadable: str | None
    view: str | None
    history: list[dict[str, Any]] = field(default_factory=list)


@o.verb(audited, "master")
def show(
    env: o.Environment,
    tables: o.Tables = None,
    history: Annotated[bool, typer.Option("--history", help="Show every change: which check, or who released it and why.")] = False,
    view: Annotated[bool, typer.Option("--view", help="Print the statement that makes it a view in Spark or on Databricks.")] = False,
    as_json: o.Json = False,
) -> int:
    """Show the audited version of each table: the newest one whose checks passed. Exit 1: it can no longer be read.

    Example: ingest audited show payments --history
    """
    from ingest.delta.delta_log import DeltaLog
    from ingest.quality import audited_version
    from ingest.runtime.errors import IngestError
    from ingest.runtime.files import files_of

    found: list[TableAudited] = []
    errors: dict[str, IngestError] = {}
    contracts = env.contracts(tables)
    with _session(env) as session:
        for contract in contracts:
            places = env.places(contract)
            files = files_of(places.lake, session)
            try:
                state = audited_version.audit_state(files, places)
                at, newest = state.audited, DeltaLog(files, places.target).newest()
                why = audited_version.unreadable(files, places, at) if at else None
                statement = audited_version.view_statement(places, at) if at else None
                changes = audited_version.history(files, places) if history else []
                found.append(TableAudited(places.name, newest, state, why, statement, changes))
            except IngestError as error:
                errors[places.name] = error
    gone = any(each.unreadable for each in found)
    shown = print_view if view else print_audited
    return print_verdict("audited-show", found, errors, as_json=as_json, as_row=as_row, show=shown, code=int(gone))


@o.verb(audited, "master")
def release(
    env: o.Environment,
    table: o.Table,
    version: Annotated[int, typer.Option("--version", min=0, help="The version of the target that readers may have.")],
    by: Annotated[str, typer.Option("--by", help="Who releases it.")],
    why: Annotated[str, typer.Option("--why", help="Why the failed check no longer counts.")],
    as_json: o.Json = False,
) -> None:
    """Make a version the audited one after a failed check. Who and why are kept for good. The hold ends, unless a check
    failed at a later version.

    Example: ingest audited release payments --version 412 --by 'Ada L.' --why 'two test payments, deleted in 411'
    """
    from ingest.quality import audited_version
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import files_of

    contract = env.contract(table)
    if not by.strip() or not why.strip():
        raise InvalidInput(
            "RELEASE_UNNAMED", "--by or --why is empty.", expected="who releases the version, and why.", remedy="fill in both."
        )
    places = env.places(contract)
    with _session(env) as session:
        state = audited_version.release(files_of(places.lake, session), places, version, by.strip(), why.strip())
    if as_json:
        print_json("audited-release", ok=True, tables=[{"table": places.name, **asdict(state)}])
        return
    out_line(f"{places.name}: version {version} is audited, released by {by.strip()}")
    if state.held:
        out_line(f"  still held back: a check failed later, at version {state.held.version}")


def as_row(found: TableAudited) -> dict[str, Any]:
    """The table's entry in the JSON document."""
    more = {"newest_version": found.newest, "unreadable": found.unreadable, "view": found.view, "history": found.history}
    return {"table": found.table, "ok": not found.unreadable, **asdict(found.state), **more}


def print_view(found: TableAudited) -> None:
    """Print the statement, or a comment that there is none."""
    out_line(f"{found.view};" if found.view else f"-- {found.table} has no audited version")


def print_audited(found: TableAudited) -> None:
    """Print the version, what holds it back, and each change."""
    from ingest.runtime.printable import printable

    at, held = found.state.audited, found.state.held
    newest = f"the newest is {found.newest}" if found.newest >= 0 else "there is no table"
    out_line(f"{found.table}: {f'version {at.version}, audited at {at.at}' if at else 'no audited version'} ({newest})")
    if held:
        out_line(f"  held back since {held.since}: a check failed, the last one at version {held.version} (run {held.run_id})")
        out_line(f"  to mend: read that run's page, then ingest audited release {found.table} --version N --by NAME --why TEXT")
    if found.unreadable:
        out_line(f"  ! it can no longer be read: {found.unreadable}; the next check that passes, or a release, names a newer one")
    for each in found.history:
        who = f"run {each['run_id']}" if each["run_id"] else f"by {printable(each['by'])}"
        out_line(
            f"  {each['at']}  {each['kind']:<8}  version {each['version']}  {who}{': ' + printable(each['why']) if each['why'] else ''}"
        )


def _session(env: o.Environment) -> Any:
    """A Spark session if the lake is not on this machine."""
    from ingest.runtime.files import is_local

    return nullcontext() if is_local(env.lake) else env.session("audited")
