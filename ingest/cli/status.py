"""`ingest status`: print the state of each table, without Spark. It takes about twice as long as loading its libraries."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.kafka.broker_answers import BrokerAnswers
    from ingest.observe.table_status import Status
    from ingest.quality.audited_version import AuditState


@dataclass(frozen=True)
class Shown:
    """A table's status, and its audited version; None if the record of that is damaged."""

    status: Status
    audit: AuditState | None


@app.command()
def status(
    context: typer.Context,
    tables: Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all of tables/.")] = None,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Show epoch, newest batch and lag per table, and what a start would do. Exit 3: a start would be refused.

    Example: ingest status orders --json
    """
    found = _found(context.obj, project, tables or [], lake, checkpoints, bootstrap_servers)
    refused = [each for each in found if each.status.refusal is not None and each.status.next == "refuse"]
    print_verdict("status", found, {}, ok=not refused, as_json=as_json, as_row=as_row, show=print_status)
    if refused:
        sys.exit(3)


def _found(broker: BrokerAnswers, project: Path, tables: list[str], lake: str, checkpoints: str, bootstrap_servers: str) -> list[Shown]:
    from ingest.contract.definition import load_contracts
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.runtime.places import Places

    contracts = load_contracts(project, tables)
    refuse_remote(lake, checkpoints)
    KafkaOptions.from_environment(bootstrap_servers)
    broker.ask(bootstrap_servers, sorted({contract.source.topic for contract in contracts}))
    from ingest.observe.table_status import status as status_of
    from ingest.quality.audited_version import audit_state
    from ingest.run.lock_file import holder
    from ingest.runtime.errors import InvalidEnvironment
    from ingest.runtime.files import LocalFiles

    found = []
    for contract in contracts:
        places = Places(lake, checkpoints, contract.pipeline, contract.table)
        try:
            audit = audit_state(LocalFiles(), places)
        except InvalidEnvironment:
            audit = None
        found.append(Shown(status_of(contract, places, partial(broker.answer, contract.source.topic), holder(places.root)), audit))
    return found


def refuse_remote(lake: str, checkpoints: str) -> None:
    """Raises InvalidInput STATUS_REMOTE unless both are on this machine: they are read without Spark."""
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.files import is_local

    if not (is_local(lake) and is_local(checkpoints)):
        raise InvalidInput(
            "STATUS_REMOTE",
            f"the lake {lake} or the checkpoints {checkpoints} are not on this machine.",
            expected="local folders: this command reads them without Spark.",
            remedy="`ingest verify` reads remote ones.",
        )


def as_row(shown: Shown) -> dict[str, Any]:
    """The table's entry in the JSON document; `audit` is null if its record is damaged."""
    return {**asdict(shown.status), "audit": asdict(shown.audit) if shown.audit else None}


def print_status(shown: Shown) -> None:
    """Print one block per table."""
    status, audit = shown.status, shown.audit
    out_line(f"{status.table}: {f'running ({status.running})' if status.running else 'not running'}")
    version = "no table" if status.target_version is None else f"version {status.target_version}, last commit {status.last_commit}"
    out_line(f"  table        {version}; epoch {status.epoch or 'none'}")
    out_line(f"  batches      newest {status.last_batch or 'none'}; ledger up to {status.ledger_batch or 'none'}")
    out_line(f"  lag          {'unknown' if status.lag is None else f'{status.lag:,} offsets'}")
    if audit is None:
        out_line(f"  audited      unknown: its record is damaged (ingest audited show {status.table})")
    elif audit.audited or audit.held:
        at = f"version {audit.audited.version}" if audit.audited else "no version"
        held = f"; held back since {audit.held.since} (ingest audited show {status.table})" if audit.held else ""
        out_line(f"  audited      {at}{held}")
    out_line(f"  a start will {status.next}")
    if status.refusal is not None:
        out_line(f"  ! {status.refusal['code']}: {status.refusal['found']}")
        out_line(f"    to mend: {status.refusal['remedy']}")
