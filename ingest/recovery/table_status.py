"""The state of a table from its files and a word from the broker, without Spark: what `ingest status` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.kafka.topic_state import TopicState
from ingest.recovery.decision import Create, Refuse, Start, decide
from ingest.recovery.state_reader import read_start_state
from ingest.runtime.errors import IngestError
from ingest.runtime.places import Places


@dataclass(frozen=True)
class Status:
    """One table's state. `epoch` and the batches are 0 for none; `lag` is in offsets, None where the broker did not answer in time.

    `last_batch` and `ledger_batch` are numbers in their epochs. `next` says what a start would do; `refusal` why it would refuse (a dict of
    code, found, expected, remedy).
    """

    table: str
    epoch: int
    last_batch: str | None
    target_version: int | None
    last_commit: str | None
    ledger_batch: str | None
    lag: int | None
    running: str | None
    next: str
    refusal: Mapping[str, str] | None


def status(contract: Contract, places: Places, asked: Callable[[], TopicState | Mapping[str, str]], running: str | None) -> Status:
    """Read logs and ledger of a local lake. `asked` waits for what the broker says of the topic, or why it does not (code, found,
    expected, remedy); `running` names who holds the lock.
    """
    broker = asked()
    logs = Logs.of(places)
    state = read_start_state(None, places, logs, lambda: broker if isinstance(broker, TopicState) else None)
    decision = decide(state, contract.source.starting_offsets)
    log = logs.target
    newest, reported = state.target.newest, state.ledger.newest
    commit = log.commit(log.newest()) if log.newest() >= 0 else None
    refused: IngestError | None = decision.error if isinstance(decision, Refuse) else _contract_refused(contract, places, log)
    refusal = refused.as_dict() if refused is not None else None if isinstance(broker, TopicState) else broker
    return Status(
        contract.name,
        state.target.epoch,
        str(newest.id) if newest is not None else None,
        commit.version if commit is not None else None,
        _time(commit.committed_at) if commit is not None else None,
        str(reported.id) if reported is not None else None,
        _lag(decision, broker) if isinstance(broker, TopicState) else None,
        running,
        "refuse" if refused is not None else _next(decision),
        refusal,
    )


def _contract_refused(contract: Contract, places: Places, log: DeltaLog) -> IngestError | None:
    """What a start says of a contract that its table cannot follow."""
    try:
        contract_change.refuse_state(contract, places.target, log.state())
    except IngestError as error:
        return error
    return None


def _next(decision: object) -> str:
    if isinstance(decision, Start) and not decision.first:
        return f"go on at {' '.join(f'{partition}:{offset}' for partition, offset in decision.offsets.items())}"
    return "create the tables and begin" if isinstance(decision, Create) else "begin where the contract says"


def _lag(decision: object, broker: TopicState) -> int | None:
    """Offsets between where a start would go on and the topic's end."""
    if isinstance(decision, Refuse):
        return None
    begins = decision.offsets if isinstance(decision, Start) else {}
    return sum(max(0, end - begins.get(partition, first)) for partition, (first, end) in broker.bounds.items())


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
