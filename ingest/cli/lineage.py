"""`ingest lineage`: send OpenLineage events of batches and validation runs."""

from __future__ import annotations

import dataclasses
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.cli.status import local_contracts
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.observe.lineage.destination import EventFile, LineageServer
    from ingest.observe.lineage.sending import Delivered
    from ingest.runtime.errors import IngestError


class By(StrEnum):
    """What one event covers."""

    BATCH = "batch"
    EPOCH = "epoch"


@o.verb(app, "checkpoints", "bootstrap_servers")
def lineage(
    env: o.Environment,
    tables: o.Tables = None,
    out: Annotated[Path | None, typer.Option("--out", help="Append the events to this file, one per line.", dir_okay=False)] = None,
    url: Annotated[str | None, typer.Option("--url", help="Send the events to this OpenLineage server.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Send everything from this time on (default: what is new).")] = None,
    by: Annotated[By, typer.Option("--by", help="One event per batch, or one per epoch with its totals so far.")] = By.BATCH,
    namespace: Annotated[str, typer.Option("--namespace", help="OpenLineage namespace of the jobs.")] = "oncelake",
    as_json: o.Json = False,
) -> int:
    """Send OpenLineage events: topic and offsets in, Delta version out, counts and checks. Each event comes from the
    ledger and has a fixed run id, so a repeated event changes nothing.

    Example: ingest lineage --url https://lineage.example:5000 --api-key-env LINEAGE_KEY
    """
    from ingest.observe.lineage.lineage_event import EventMaker
    from ingest.observe.lineage.sending import send_table
    from ingest.runtime.errors import IngestError
    from ingest.sql.catalog import parse_time

    start = parse_time(since, "LINEAGE_SINCE_INVALID") if since is not None else None
    contracts = local_contracts(env, tables)
    found: list[Delivered] = []
    errors: dict[str, IngestError] = {}
    destination = _destination(out, url, api_key_env)
    try:
        for contract in contracts:
            maker = EventMaker(contract, env.places(contract), env.bootstrap_servers.split(",")[0].strip(), namespace)
            try:
                found.append(send_table(maker, destination, start, by_epoch=by is By.EPOCH))
            except IngestError as error:
                errors[contract.name] = error
                if error.code == "LINEAGE_NOT_SENT":
                    break
    finally:
        destination.close()
    return print_verdict("lineage", found, errors, as_json=as_json, as_row=dataclasses.asdict, show=_print)


def _destination(out: Path | None, url: str | None, api_key_env: str | None) -> EventFile | LineageServer:
    from ingest.observe.lineage.destination import EventFile, LineageServer
    from ingest.runtime.errors import InvalidInput

    if (out is None) == (url is None):
        found = "--out and --url were given together." if out is not None else "neither --out nor --url was given."
        raise InvalidInput("LINEAGE_DESTINATION", found, expected="one of them.", remedy="name a file with --out or a server with --url.")
    if url is None:
        assert out is not None
        return EventFile(out)
    key = os.environ.get(api_key_env) if api_key_env is not None else None
    if api_key_env is not None and not key:
        found, remedy = f"the environment variable {api_key_env} is not set.", "set it, or leave --api-key-env out."
        raise InvalidInput("LINEAGE_KEY_MISSING", found, expected="the server's API key in it.", remedy=remedy)
    return LineageServer(url, key)


def _print(row: Delivered) -> None:
    newest = f", up to batch {row.newest_batch}" if row.newest_batch else ""
    out_line(f"{row.table}: {row.batches:,} batches and {row.validation_runs:,} validation runs in {row.events:,} events{newest}")
