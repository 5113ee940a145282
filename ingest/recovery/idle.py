"""A check without Spark, for a lake on a local disk: a start that is refused, or has nothing to read, ends here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.delta_log import DeltaLog, Logs
from ingest.delta.delta_sql import DataFusion
from ingest.kafka.topic_state import TopicState
from ingest.ledger.ledger_reader import unledgered
from ingest.recovery.decision import Refuse, Start, decide
from ingest.recovery.replay import unfinished
from ingest.recovery.start_state import StartState
from ingest.recovery.state_reader import read_start_state
from ingest.runtime.places import Places


@dataclass(frozen=True)
class Waiting:
    """The number of offsets that a start would read at most, and whether it has to open an epoch also if there are none.

    That is so for a first start, and if a batch is uncommitted, unfinished or missing in the ledger.
    """

    offsets: int
    epoch: bool


def waiting(contract: Contract, places: Places, ask: Callable[[], TopicState]) -> Waiting:
    """What a start would do. Raises the refusal of a start, and Unreadable if deltalake cannot read a table."""
    logs = Logs.of(places)
    state = read_start_state(None, places, logs, ask)
    decision = decide(state, contract.source.starting_offsets)
    if isinstance(decision, Refuse):
        raise decision.error
    contract_change.refuse_state(contract, places.target, logs.target.state())
    broker = state.broker
    assert broker is not None, "it was asked"
    starts = decision.offsets if isinstance(decision, Start) else {}
    number = sum(end - starts.get(partition, broker.bounds[partition][0]) for partition, end in broker.ends().items())
    begun = isinstance(decision, Start) and not decision.first and state.quarantine.snapshot is not None
    return Waiting(number, not begun or _uncommitted(places, logs.target, state))


def _uncommitted(places: Places, log: DeltaLog, state: StartState) -> bool:
    newest = state.target.newest
    assert newest is not None, "this is no first start"
    ahead = state.quarantine.newest is not None and state.quarantine.newest > newest.id
    return ahead or bool(unledgered(log, places.name, state.ledger)) or unfinished(DataFusion(), places, log, newest) is not None
