"""`ingest trace`: the way of one event id from the outbox to the lake."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

EventId = Annotated[str, typer.Argument(help="The event id.")]
Database = Annotated[
    str | None, typer.Option("--database-url", envvar="INGEST_DATABASE_URL", help="PostgreSQL with outbox, sinks and effects.")
]
Scan = Annotated[list[str] | None, typer.Option("--scan", metavar="TOPIC", help="Read this topic whole for copies. Repeatable.")]


@o.verb(app, "checkpoints", "bootstrap_servers")
def trace(
    env: o.Environment,
    event_id: EventId,
    scan: Scan = None,
    database_url: Database = None,
    as_json: o.Json = False,
) -> None:
    """Show where an event id was seen, from the outbox to the lake. Also in Kafka, database sinks, API calls with
    their history, dead letters and quarantine. Exit 1: nowhere.

    Example: ingest trace order-17 --scan shop.orders
    """
    from ingest.delivery.trace.kafka_trail import kafka_trail
    from ingest.delivery.trace.lake_trail import lake_trail, traceable
    from ingest.delivery.trace.sighting import Sighting
    from ingest.runtime.files import is_local

    found: list[Sighting] = []
    if database_url is not None:
        from ingest.delivery.database import schema
        from ingest.delivery.trace.database_trail import database_trail

        engine = schema.checked(database_url)
        found += database_trail(engine, event_id)
    kafka = env.kafka
    for topic in scan or []:
        found += kafka_trail(kafka, topic, event_id)
    contracts, local = env.contracts() if (env.project / "tables").is_dir() else (), is_local(env.lake)
    skipped = [contract.name for contract in contracts if not (local and traceable(contract))]
    elsewhere = [*([] if database_url else ["the database (--database-url)"]), *([] if scan else ["Kafka's topics (--scan)"])]
    for contract in contracts:
        if contract.name not in skipped:
            found += lake_trail(contract, env.places(contract), event_id)
    if as_json:
        print_json("trace", ok=bool(found), event_id=event_id, sightings=[asdict(each) for each in found], skipped=skipped + elsewhere)
    else:
        for each in found:
            out_line(f"{each.place:<12} {each.name:<16} {each.summary}")
            for step in each.history:
                out_line(f"{'':<29} {step}")
        if not found:
            out_line(f"{event_id} was seen nowhere")
        for name in skipped:
            out_line(f"note: {name} was not searched: {'its event id is not one text' if local else 'its lake is not on a local disk'}")
        if elsewhere:
            out_line(f"note: not searched: {', '.join(elsewhere)}")
    if not found:
        raise typer.Exit(1)
