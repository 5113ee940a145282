"""All that is known before a start: checkpoint, table, ledger and topic, and what preflight makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.errors import Refused
from ingest.files import Files
from ingest.places import Places
from ingest.stream import preflight
from ingest.stream.facts import checkpoint_facts, table_facts
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.preflight import Decision
from ingest.stream.quarantine_loss import read_seen
from ingest.stream.situation import BrokerFacts, CheckpointFacts, TableFacts


@dataclass(frozen=True)
class Assessment:
    """Facts and the decision on them; `refusals` are all that hold, the decision is for the upper one."""

    checkpoint: CheckpointFacts
    table: TableFacts
    summary: LedgerSummary
    broker: BrokerFacts | None
    decision: Decision
    refusals: tuple[Refused, ...] = ()


def assess(checkpoints: Files, lake: Files, places: Places, summary: LedgerSummary, broker: BrokerFacts | None) -> Assessment:
    """Read and decide; `checkpoints` and `lake` are the file systems of the two. Raises nothing: a refusal is a decision."""
    checkpoint = checkpoint_facts(checkpoints, places)
    table = table_facts(lake, places, checkpoint, summary, read_seen(checkpoints, places.state))
    facts = (places.name, checkpoint, table, broker)
    return Assessment(checkpoint, table, summary, broker, preflight.decide(*facts), tuple(preflight.refusals_of(*facts)))
