"""A check without Spark, for a lake on a local disk: a start that is refused, or has nothing to read, ends here."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.contract.definition import Contract
from ingest.delta import contract_change
from ingest.delta.delta_log import Logs
from ingest.delta.delta_sql import DataFusion
from ingest.ledger.projection import unwritten
from ingest.recovery.decision import Refuse, Start, decide
from ingest.recovery.replay import unfinished
from ingest.recovery.state_reader import Broker, read_start_state
from ingest.runtime.places import Places


@dataclass(frozen=True)
class Waiting:
    """The number of offsets that a start would read at most, and whether it has to open an epoch also if there are none.

    That is so for a first start, if a topic joins, and if a batch is uncommitted, unfinished or missing in the books.
    """

    offsets: int
    epoch: bool


def waiting(contract: Contract, places: Places, ask: Broker) -> Waiting:
    """What a start would do. Raises the refusal of a start, and Unreadable if deltalake cannot read a table."""
    logs = Logs.of(places)
    state = read_start_state(None, places, logs, ask)
    decision = decide(state, contract.source.starting_offsets)
    if isinstance(decision, Refuse):
        raise decision.error
    contract_change.refuse_state(contract, places.target, logs.target.state())
    topics = state.topics
    assert topics is not None, "they were asked for"
    starts = {**topics.firsts, **(decision.offsets if isinstance(decision, Start) else {})}
    number = sum(end - starts[of] for of, end in topics.ends.items())
    if not isinstance(decision, Start) or decision.first or decision.joins or state.quarantine.snapshot is None:
        return Waiting(number, True)
    newest, log = state.target.newest, logs.target
    assert newest is not None, "this is no first start"
    ahead = state.quarantine.newest is not None and state.quarantine.newest > newest.id
    unposted = bool(state.target.opened or unwritten(logs, places.name)[0])
    return Waiting(number, ahead or unposted or unfinished(DataFusion(), places, log, newest) is not None)
