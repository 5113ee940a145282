"""A first look without Spark, for a lake on the machine's own disk: a start that is refused, or finds nothing to do, ends here."""

from __future__ import annotations

from collections.abc import Callable

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


def waiting(contract: Contract, places: Places, ask: Callable[[], TopicState]) -> int:
    """How many offsets a start would read, at most. 0 where nothing is uncommitted either: then no epoch need be opened.

    Raises what a start would refuse with, and Unreadable for what deltalake cannot read.
    """
    logs = Logs.of(places)
    state = read_start_state(None, places, logs, ask)
    decision = decide(state, contract.source.starting_offsets)
    if isinstance(decision, Refuse):
        raise decision.error
    contract_change.refuse_state(contract, places.target, logs.target.state())
    broker = state.broker
    assert broker is not None, "it was asked"
    begins = decision.offsets if isinstance(decision, Start) else {}
    number = sum(end - begins.get(partition, broker.bounds[partition][0]) for partition, end in broker.ends().items())
    begun = isinstance(decision, Start) and not decision.first and state.quarantine.snapshot is not None
    return number or int(not begun or _uncommitted(places, logs.target, state))


def _uncommitted(places: Places, log: DeltaLog, state: StartState) -> bool:
    newest = state.target.newest
    assert newest is not None, "this is no first start"
    ahead = state.quarantine.newest is not None and state.quarantine.newest > newest.id
    return ahead or bool(unledgered(log, places.name, state.ledger)) or unfinished(DataFusion(), places, log, newest) is not None
