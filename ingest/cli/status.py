"""`ingest status`: print the state of each table, without Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.delta.index_state import IndexState
    from ingest.observe.table_status import Status
    from ingest.quality.audited_version import AuditState


@dataclass(frozen=True)
class Shown:
    """A table's status, its audited version (None: its record is damaged), and its index of event ids (None: no batch needed one)."""

    status: Status
    audit: AuditState | None
    index: IndexState | None = None


@o.verb(app, "checkpoints", "bootstrap_servers")
def status(
    env: o.Environment,
    tables: o.Tables = None,
    as_json: o.Json = False,
) -> int:
    """Show epoch, newest batch and lag per table, and what a start would do. Exit 3: a start would be refused.

    Example: ingest status orders --json
    """
    found = _found(env, tables)
    refused = any(each.status.refusal is not None and each.status.next == "refuse" for each in found)
    return print_verdict("status", found, {}, as_json=as_json, as_row=as_row, show=print_status, code=3 if refused else 0)


def _found(env: o.Environment, tables: list[str] | None) -> list[Shown]:
    from ingest.delta.index_state import state_of
    from ingest.kafka.topic import answers
    from ingest.observe.table_status import status as status_of
    from ingest.quality.audited_version import audit_state
    from ingest.run.lock_file import holder
    from ingest.runtime.errors import InvalidEnvironment
    from ingest.runtime.files import LocalFiles

    contracts = local_contracts(env, tables)
    found = []
    for contract, answer in zip(contracts, answers(env.kafka, [contract.source for contract in contracts]), strict=True):
        places = env.places(contract)
        try:
            audit = audit_state(LocalFiles(), places)
        except InvalidEnvironment:
            audit = None
        now = status_of(contract, places, answer, holder(places.root))
        found.append(Shown(now, audit, state_of(places)))
    return found


def local_contracts(env: o.Environment, tables: list[str] | None) -> tuple[Contract, ...]:
    """The contracts of tables that are read without Spark. Raises InvalidInput STATUS_REMOTE unless lake and checkpoints are local, and as
    `KafkaOptions.from_environment`.
    """
    from ingest.runtime.errors import InvalidInput

    contracts = env.contracts(tables)
    if not env.is_local:
        raise InvalidInput(
            "STATUS_REMOTE",
            f"the lake {env.lake} or the checkpoints {env.checkpoints} are not on this machine.",
            expected="local folders: this command reads them without Spark.",
            remedy="`ingest verify` reads remote ones.",
        )
    _ = env.kafka
    return contracts


def as_row(shown: Shown) -> dict[str, Any]:
    """The table's entry in the JSON document; `audit` is null if its record is damaged, `index` if no batch needed one."""
    audit, index = (asdict(each) if each else None for each in (shown.audit, shown.index))
    return {**asdict(shown.status), "audit": audit, "index": index}


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
    if (index := shown.index) is not None:
        share = f"; it answered {index.answered:,} of {index.answered + index.read:,} probes of files"
        bytes_in_mb = f"{index.bytes / 1e6:,.1f} of {index.bytes_max / 1e6:,.0f} MB"
        out_line(f"  event ids    {index.rows:,} rows in {index.levels} levels, {bytes_in_mb}{share}")
        if index.no_room:
            out_line(f"  ! it is full, so a file was read {index.no_room:,} times (INGEST_ID_INDEX_MB)")
    out_line(f"  a start will {status.next}")
    if status.refusal is not None:
        out_line(f"  ! {status.refusal['code']}: {status.refusal['found']}")
        out_line(f"    to mend: {status.refusal['remedy']}")
