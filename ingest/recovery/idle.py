"""A first look without Spark, for a lake on the machine's own disk: a start that is refused, or finds nothing to do, ends here."""

from __future__ import annotations

from ingest.contract import Contract
from ingest.delta_sql import DataFusion
from ingest.places import Places
from ingest.recovery.decide import Refuse, Start, decide
from ingest.recovery.facts import BrokerFacts, Facts
from ingest.recovery.look import Logs, look
from ingest.recovery.replay import pending
from ingest.stream import contract_change
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger_reader import unledgered


def idle(contract: Contract, places: Places, broker: BrokerFacts) -> bool:
    """Whether there is nothing to read and nothing uncommitted: then no epoch need be opened. Raises what a start would refuse with."""
    logs = Logs.of(places)
    facts = look(None, places, logs, broker)
    decision = decide(facts, contract.source.starting_offsets)
    if isinstance(decision, Refuse):
        raise decision.error
    state = logs.target.state()
    if state is not None:
        contract_change.refuse(contract, places.target, contract_change.changes(contract, state))
    if not isinstance(decision, Start) or decision.first or facts.quarantine.look is None:
        return False
    return dict(decision.offsets) == broker.ends() and not _uncommitted(places, logs.target, facts)


def _uncommitted(places: Places, log: DeltaLog, facts: Facts) -> bool:
    newest = facts.target.newest
    assert newest is not None, "nothing was read yet"
    if facts.quarantine.newest is not None and facts.quarantine.newest > newest.id:
        return True
    if unledgered(log, places.name, facts.ledger):
        return True
    if newest.version is None or newest.looked is None:
        return False
    mark = log.commit(newest.version).mark
    return mark is not None and mark.kind == "batch" and pending(DataFusion(), places, mark)
