"""The status of a table for `ingest status`, from the table's files and the broker's answer, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.kafka.topic import Answer
from ingest.kafka.topic_state import TopicId
from ingest.recovery.decision import Create, Refuse, Start, decide
from ingest.recovery.numbering import Numbered
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import read_start_state
from ingest.runtime.errors import IngestError
from ingest.runtime.places import Places


@dataclass(frozen=True)
class Status:
    """One table's status. `epoch` is 0 if there is none.

    `last_batch` and `ledger_batch` are the newest batch or seek of the table and of the ledger, as `epoch/number`. `last_commit` is a time
    in UTC. `lag` is in offsets; None if the broker did not answer in time, or a start would be refused. `running` names the process that
    holds the lock. `next` says what a start would do. `refusal` says why it would be refused, or why the broker did not answer (code,
    found, expected, remedy).
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


def status(contract: Contract, places: Places, answer: Answer, running: str | None) -> Status:
    """Read logs and ledger of a local lake. `answer` is the broker's; `running` names the process that holds the lock."""
    logs = Logs.of(places)
    state = read_start_state(None, places, logs, (lambda: answer) if isinstance(answer, tuple) else None)
    return status_of(contract, places, logs, state, answer, running)


def status_of(contract: Contract, places: Places, logs: Logs, state: StartState, answer: Answer, running: str | None) -> Status:
    """The status of a table in this state, which was read from these logs."""
    decision = decide(state, contract.source.starting_offsets)
    log = logs.target
    newest, in_ledger = state.target.newest, state.ledger.newest
    commit = log.commit(log.newest()) if log.newest() >= 0 else None
    refused: IngestError | None = decision.error if isinstance(decision, Refuse) else _contract_refused(contract, places, log)
    refusal = refused.as_dict() if refused is not None else None if isinstance(answer, tuple) else answer
    return Status(
        contract.name,
        state.target.epoch,
        str(newest.id) if newest is not None else None,
        commit.version if commit is not None else None,
        _time(commit.committed_at) if commit is not None else None,
        str(in_ledger.id) if in_ledger is not None else None,
        _lag(decision, state.topics),
        running,
        "refuse" if refused is not None else _next(decision, state.numbered().sources),
        refusal,
    )


def _contract_refused(contract: Contract, places: Places, log: DeltaLog) -> IngestError | None:
    """The refusal of a contract that the table cannot follow; None if it can."""
    try:
        contract_change.refuse_state(contract, places.target, log.state())
    except IngestError as error:
        return error
    return None


def _next(decision: object, sources: Sequence[TopicId]) -> str:
    if isinstance(decision, Start) and not decision.first:
        several = len({number for number, _ in decision.offsets}) > 1
        each = (f"{sources[of[0]].name}/{of[1]}:{at}" if several else f"{of[1]}:{at}" for of, at in decision.offsets.items())
        return f"continue at {' '.join(each)}"
    first = "read from the contract's starting_offsets"
    return f"create the tables and {first}" if isinstance(decision, Create) else first


def _lag(decision: object, topics: Numbered | None) -> int | None:
    """The number of offsets from the next one of a start to the topics' ends; None if that is unknown, or the start would be refused."""
    if topics is None or isinstance(decision, Refuse):
        return None
    starts = decision.offsets if isinstance(decision, Start) else {}
    return sum(max(0, end - starts.get(of, first)) for of, (first, end) in topics.bounds.items())


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
