"""The state of a table from its files and a word from the broker, without Spark: what `ingest status` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.contract import Contract
from ingest.errors import IngestError
from ingest.files import LocalFiles
from ingest.places import Places
from ingest.stream import contract_change
from ingest.stream.assessment import assess
from ingest.stream.contract_kept import stored_contract
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_reader import summarise
from ingest.stream.preflight import Refuse, Resume, Run, Skip
from ingest.stream.situation import BrokerFacts


@dataclass(frozen=True)
class Status:
    """One table's state. Batches are -1 for none; `lag` is in offsets, None where the broker did not answer in time.

    `next` says what a start would do; `refusal` why it would refuse (a dict of code, found, expected, remedy).
    """

    table: str
    checkpoint: str
    query_id: str | None
    epoch: int
    planned: int
    committed: int
    target_version: int | None
    last_batch: int
    last_commit: str | None
    ledger_batch: int
    lag: int | None
    running: str | None
    next: str
    refusal: Mapping[str, str] | None


def status(contract: Contract, places: Places, asked: Callable[[], BrokerFacts | Mapping[str, str]], running: str | None) -> Status:
    """Read checkpoint, logs and ledger of a local lake. `asked` waits for what the broker says of the topic, or why it does not (code,
    found, expected, remedy); `running` names who holds the lock.
    """
    files = LocalFiles()
    summary = summarise(None, places)
    broker = asked()
    facts = broker if isinstance(broker, BrokerFacts) else None
    known = assess(files, files, places, summary, facts)
    checkpoint, table = known.checkpoint, known.table
    log = DeltaLog(files, places.target)
    versions = log.versions()
    newest = log.commit(versions[-1]) if versions else None
    last = table.last.mark.id.number if table.last is not None else -1
    decision = known.decision
    refused: IngestError | None = decision.error if isinstance(decision, Refuse) else _contract_refused(contract, places, files, log)
    begin = _next(decision)
    if refused is not None and not isinstance(decision, Refuse):
        begin = "refuse" if not isinstance(decision, Run) else f"{begin} (under its own contract), then refuse"
    refusal = refused.as_dict() if refused is not None else None if isinstance(broker, BrokerFacts) else broker
    return Status(
        contract.name,
        places.checkpoint,
        checkpoint.query_id,
        checkpoint.binding.epoch if checkpoint.binding else 0,
        checkpoint.planned.id.number if checkpoint.planned else -1,
        checkpoint.committed,
        newest.version if newest else None,
        last,
        _time(newest.committed_at) if newest else None,
        summary.last_batch(checkpoint.query_id) if checkpoint.query_id else -1,
        _lag(
            known.checkpoint.planned is not None,
            {r.partition: r.end for r in checkpoint.planned.ranges} if checkpoint.planned else {},
            facts,
        ),
        running,
        begin,
        refusal,
    )


def _contract_refused(contract: Contract, places: Places, files: LocalFiles, log: DeltaLog) -> IngestError | None:
    """What a start says of a contract that its table cannot follow, or of a kept one that cannot be read."""
    state = log.state()
    if state is None:
        return None
    try:
        contract_change.refuse(contract, places.target, contract_change.changes(contract, stored_contract(files, places), state))
    except IngestError as error:
        return error
    return None


def _next(decision: object) -> str:
    if isinstance(decision, Run):
        return f"run batch {decision.number} again: it was planned and is not in the table"
    if isinstance(decision, Skip):
        return f"skip batch {decision.number}: version {decision.version} of the table proves it"
    if isinstance(decision, Resume):
        return f"go on with batch {decision.number}"
    return "refuse" if isinstance(decision, Refuse) else "start a new checkpoint"


def _lag(planned: bool, reached: Mapping[int, int], broker: BrokerFacts | None) -> int | None:
    """Offsets between the last planned batch, or the topic's beginning, and the topic's end."""
    if broker is None:
        return None
    return sum(max(0, end - (reached.get(partition, 0) if planned else first)) for partition, (first, end) in broker.bounds.items())


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
