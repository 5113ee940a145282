"""`ingest quarantine`: list, show and export quarantined records, and replay, drop or reopen them."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.delta.delta_sql import Engine
    from ingest.delta.table_writer import TableWriter
    from ingest.repair.replayed import Replayed
    from ingest.repair.selection import Selection
    from ingest.runtime.places import Places

States = Annotated[list[str] | None, typer.Option("--state", help="Only this state: open, replayed, dropped. May be repeated.")]
By = Annotated[str, typer.Option("--by", envvar="USER", help="Who decides this; kept in the column state_by.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Allow a command without any of --reason, --at, --since and --until.")]

SHOWN_CHARACTERS = 400

quarantine = typer.Typer(name="quarantine", help="Look at quarantined records, and replay or drop them.", no_args_is_help=True)
app.add_typer(quarantine)


@dataclass(frozen=True)
class Chosen:
    """The options that select records."""

    reason: Annotated[list[str] | None, typer.Option("--reason", help="Only this reason code. May be repeated.")] = None
    at: Annotated[
        list[str] | None, typer.Option("--at", help="Only this offset (0:1200, orders/0:1200) or range (0:1200-1300). Repeatable.")
    ] = None
    since: Annotated[
        str | None, typer.Option("--since", help="Only records with a Kafka timestamp from this time on, as 2026-11-21T08:00Z.")
    ] = None
    until: Annotated[str | None, typer.Option("--until", help="Only records with a Kafka timestamp before this time.")] = None


@dataclass(frozen=True)
class _Scope:
    """One table with the records that the options select."""

    contract: Contract
    places: Places
    selection: Selection


@o.verb(quarantine, "master", name="list")
def list_(
    env: o.Environment,
    chosen: Chosen,
    tables: o.Tables = None,
    state: States = None,
    as_json: o.Json = False,
) -> None:
    """Count the quarantined records of each table by reason and state.

    Example: ingest quarantine list orders --state open
    """
    from ingest.cli.audit import with_engine
    from ingest.repair.quarantined import grouped
    from ingest.repair.selection import STATES
    from ingest.runtime.printable import aligned

    scopes = _scopes(env, tables, state or list(STATES), chosen)

    def count(engine: Engine) -> list[tuple[str, list[dict[str, Any]]]]:
        return [(scope.places.name, grouped(engine, scope.places, scope.selection)) for scope in scopes]

    found = with_engine(env.lake, count, env.master, verb="quarantine")
    if as_json:
        print_json("quarantine-list", ok=True, tables=[{"table": name, "groups": groups} for name, groups in found])
        return
    for name, groups in found:
        out_line(f"{name}: {sum(group['records'] for group in groups):,} records")
        if groups:
            columns = ("reason", "state", "records", "first", "last")
            out_line(*(f"  {line}" for line in aligned([columns, *([str(group[name]) for name in columns] for group in groups)], {2})))


@o.verb(quarantine, "master")
def show(
    env: o.Environment,
    table: o.Table,
    chosen: Chosen,
    state: States = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum records.")] = 5,
    as_json: o.Json = False,
) -> None:
    """Print quarantined records with their reason and value. They may contain personal data.

    Example: ingest quarantine show orders --reason broken_rule --limit 2
    """
    from ingest.cli.audit import with_engine
    from ingest.repair.quarantined import records
    from ingest.runtime.printable import printable

    (scope,) = _scopes(env, [table], state or ["open"], chosen)
    found = with_engine(env.lake, lambda engine: list(records(engine, scope.places, scope.selection, limit)), env.master, verb="quarantine")
    if as_json:
        print_json("quarantine-show", ok=True, tables=[{"table": scope.places.name, "records": found}])
        return
    for each in found:
        text = each["value_text"] if each["value_text"] is not None else f"(base64) {each['value']}"
        topic = "" if each["topic"] == scope.contract.source.topic else f" of topic {each['topic']}"
        where = f"partition {each['partition']}{topic} offset {each['offset']}"
        out_line(f"{where}, {each['kafka_timestamp']}, {each['state']} (by {each['state_by']})")
        out_line(f"  {each['reason_code']}: {printable(each['reason_detail'] or '')}")
        out_line(f"  {printable(text[:SHOWN_CHARACTERS])}{' …' if len(text) > SHOWN_CHARACTERS else ''}")
    if not found:
        out_line("no record is selected")


@o.verb(quarantine, "master")
def export(
    env: o.Environment,
    table: o.Table,
    out: Annotated[Path, typer.Option("--out", help="File to write: one JSON object per line. It must not exist.")],
    chosen: Chosen,
    state: States = None,
    as_json: o.Json = False,
) -> None:
    """Write quarantined records to a file, with their bytes as base64.

    Example: ingest quarantine export orders --reason malformed_json --out broken.ndjson
    """
    from ingest.cli.audit import with_engine
    from ingest.repair.quarantined import records
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import PRIVATE, replacing

    (scope,) = _scopes(env, [table], state or ["open"], chosen)

    def write(engine: Engine) -> int:
        with replacing(out, PRIVATE) as file:
            return sum(file.write(f"{json.dumps(each)}\n".encode()) > 0 for each in records(engine, scope.places, scope.selection))

    try:
        if os.path.lexists(out):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not out.absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        number = with_engine(env.lake, write, env.master, verb="quarantine")
    except OSError as error:
        if error.filename is not None and Path(error.filename).parent != out.parent:
            raise  # a file of the lake that could not be read
        raise InvalidInput(
            "EXPORT_FILE",
            f"{out}: {error.strerror or error}.",
            expected="a path in an existing folder, where no file exists yet.",
            remedy="name another --out.",
        ) from error
    if as_json:
        print_json("quarantine-export", ok=True, tables=[{"table": scope.places.name, "records": number, "file": str(out)}])
    else:
        out_line(f"{number:,} records of {scope.places.name} written to {out}")


@o.verb(quarantine, "checkpoints", "bootstrap_servers", "master")
def replay(
    env: o.Environment,
    table: o.Table,
    chosen: Chosen,
    state: States = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decode the records and count the outcomes, but change nothing.")] = False,
    as_json: o.Json = False,
) -> None:
    """Decode the kept bytes again under today's contract. Accepted records become rows; refused ones stay.

    No event id is added twice. Conflicting duplicates are replayed only if --reason names them. Stop the table's run first.

    Example: ingest quarantine replay orders --reason wrong_type --dry-run
    """
    from ingest.kafka.topic import current_states
    from ingest.repair.quarantine_replay import replay_quarantine, try_replay, without_conflicts
    from ingest.run import table_lock
    from ingest.run.writing_session import with_writer

    (scope,) = _scopes(env, [table], state or ["open"], chosen)
    contract, places, selection = scope.contract, scope.places, without_conflicts(scope.selection)
    broker = partial(current_states, env.kafka, contract.source)

    now = broker()
    if not dry_run:
        table_lock.wait_for(places)

    def replayed(writer: TableWriter) -> Replayed:
        if dry_run:
            return try_replay(writer, contract, places, lambda: now, selection)
        return replay_quarantine(writer, contract, places, broker, selection)

    done = with_writer(contract, places, env.master, "replay", replayed, only_look=dry_run)
    for each in done.healed:
        err_line(f"note: {places.name}: {each}")
    if as_json:
        print_json("quarantine-replay", ok=True, tables=[{"table": places.name, "dry_run": dry_run, **vars(done)}])
    else:
        print_replayed(places.name, done)


@o.verb(quarantine, "master")
def drop(
    env: o.Environment,
    table: o.Table,
    by: By,
    chosen: Chosen,
    everything: All = False,
    as_json: o.Json = False,
) -> None:
    """Mark open records as dropped: nobody needs to look at them again. Their bytes stay until `ingest maintain` removes them.

    Example: ingest quarantine drop orders --reason malformed_json --by ada
    """
    (scope,) = _scopes(env, [table], ["open"], chosen)
    _change(scope, env.master, "dropped", by, everything=everything, as_json=as_json)


@o.verb(quarantine, "master")
def reopen(
    env: o.Environment,
    table: o.Table,
    by: By,
    chosen: Chosen,
    everything: All = False,
    as_json: o.Json = False,
) -> None:
    """Mark dropped records as open again.

    Example: ingest quarantine reopen orders --at 0:1200-1300 --by ada
    """
    (scope,) = _scopes(env, [table], ["dropped"], chosen)
    _change(scope, env.master, "open", by, everything=everything, as_json=as_json)


def _change(scope: _Scope, master: str, state: str, by: str, *, everything: bool, as_json: bool) -> None:
    from ingest.delta.delta_sql import asked
    from ingest.repair.quarantined import grouped
    from ingest.run import table_lock
    from ingest.run.writing_session import with_writer
    from ingest.runtime.errors import InvalidInput

    selection, places = scope.selection, scope.places
    if not everything and not (selection.reasons or selection.positions or selection.since or selection.until):
        raise InvalidInput(
            "SELECTION_EMPTY",
            "no --reason, --at, --since or --until.",
            expected="a selection of records, or --all.",
            remedy=f"see `ingest quarantine list {places.name}`, then name the records.",
        )
    table_lock.wait_for(places)

    def changed(writer: TableWriter) -> int:
        groups = asked(places.lake, writer.session, lambda engine: grouped(engine, places, selection))
        if number := sum(int(group["records"]) for group in groups):
            writer.set_state(places, selection.condition, state, by)
        return number

    number = with_writer(scope.contract, places, master, "quarantine", changed)
    if as_json:
        verb = "quarantine-drop" if state == "dropped" else "quarantine-reopen"
        print_json(verb, ok=True, tables=[{"table": places.name, "records": number}])
    else:
        out_line(f"{places.name}: {number:,} records are {state} now, by {by}")


def print_replayed(name: str, done: Replayed) -> None:
    """Print the outcome of a replay as the parts of a sum."""
    refused = sum(done.refused.values())
    if done.epoch is None:
        out_line(f"{name}: dry run: of {done.selected:,} records the contract accepts {done.inserted:,} and refuses {refused:,}")
    else:
        out_line(f"{name}: {done.selected:,} records = {done.inserted:,} rows + {done.duplicate:,} duplicates + {refused:,} still refused")
    if done.duplicate:
        out_line("  the table has the event ids of the duplicates, which stay as they are; `ingest quarantine drop` settles them")
    for reason, number in done.refused.items():
        out_line(f"  {number:>10,} {reason}")
    if done.elsewhere:
        out_line(f"  {done.elsewhere:,} records of a topic that is not read now cannot be replayed; `ingest quarantine export` writes them")
    if done.epoch is not None:
        out_line(f"{name}: epoch {done.epoch} is open; `ingest run {name}` continues from the table's end")


def _scopes(env: o.Environment, tables: list[str] | None, states: list[str], chosen: Chosen) -> list[_Scope]:
    from ingest.repair.selection import parse_selection

    selection = parse_selection(states, chosen.reason or [], chosen.at or [], chosen.since, chosen.until)
    return [_Scope(each, env.places(each), selection) for each in env.contracts(tables)]
