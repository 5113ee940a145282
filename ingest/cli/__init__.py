"""The command `ingest`: one short function per verb (parse, call, print)."""

from __future__ import annotations

from importlib import import_module

# The order of `ingest --help`: verbs by group, each with its module.
VERBS = {
    "Pipeline": {
        **{"run": "run", "status": "status", "seek": "seek", "plan": "plan", "apply": "plan"},
        **{"init": "init", "register": "register_tables", "doctor": "doctor", "jars": "doctor"},
    },
    "Proof": {"verify": "verify", "audit": "audit", "compare": "compare", "proof": "proof", "totals": "totals", "audited": "audited"},
    "Watch": {"report": "report", "ui": "report", "metrics": "metrics", "lineage": "lineage"},
    "Maintenance and repair": {"maintain": "maintain", "quarantine": "quarantine", "rebuild": "rebuild", "erase": "erase"},
    "Quality and SQL": {"check": "check", "suggest": "check", "sql": "sql"},
    "Kafka": {"log": "log", "transactions": "transactions"},
    "Beyond Kafka": {"database": "migrate", "outbox": "outbox", "sink": "sink", "effects": "effects", "trace": "trace"},
    "Lab": {"demo": "demo", "chaos": "chaos", "semantics": "semantics", "broker": "embedded", "postgres": "embedded"},
}


def register() -> None:
    """Import the modules that add their verbs to the application. They import heavy packages only inside a verb."""
    for verbs in VERBS.values():
        for module in verbs.values():
            import_module(f"ingest.cli.{module}")
