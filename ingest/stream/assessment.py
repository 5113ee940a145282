"""All that is known before a start: checkpoint, table, ledger and topic, and what preflight makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.files import Files
from ingest.places import Places
from ingest.stream import preflight
from ingest.stream.facts import checkpoint_facts, table_facts
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.preflight import BrokerFacts, CheckpointFacts, Decision, TableFacts


@dataclass(frozen=True)
class Assessment:
    """Facts and the decision on them."""

    checkpoint: CheckpointFacts
    table: TableFacts
    summary: LedgerSummary
    broker: BrokerFacts | None
    decision: Decision


def assess(checkpoints: Files, lake: Files, places: Places, summary: LedgerSummary, broker: BrokerFacts | None) -> Assessment:
    """Read and decide; `checkpoints` and `lake` are the file systems of the two. Raises nothing: a refusal is a decision."""
    checkpoint = checkpoint_facts(checkpoints, places)
    table = table_facts(lake, places, checkpoint, summary)
    return Assessment(checkpoint, table, summary, broker, preflight.decide(places.name, checkpoint, table, broker))
