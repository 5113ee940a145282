"""`ingest rebuild`: build a table anew beside the old one, and swap it in."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingest.contract.definition import Contract
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.topic_state import TopicState
    from ingest.rebuild.shadow import Carried
    from ingest.rebuild.swap import Swapped
    from ingest.runtime.places import Places


@app.command()
def rebuild(
    table: Annotated[str, typer.Argument(help="The table (name or pipeline.name).")],
    swap: Annotated[bool, typer.Option("--swap", help="Put the shadow in the table's place. Stop the table's run first.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Remove the shadow first, and build it anew.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what only the old table has, and change nothing.")] = False,
    keep_shadow: Annotated[bool, typer.Option("--keep-shadow", help="After --swap, keep the shadow.")] = False,
    project: o.Project = o.PROJECT_DEFAULT,
    lake: o.Lake = o.LAKE_DEFAULT,
    checkpoints: o.Checkpoints = o.CHECKPOINTS_DEFAULT,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Build a table anew beside the old one, and swap it in.

    The shadow is filled from Kafka, and from what the old tables alone hold. --swap puts it in the table's place.
    The table's run may go on until the swap. A second `ingest rebuild` reads on in the same shadow.

    Example, after ingest compare: ingest rebuild orders --swap
    """
    from ingest.contract.definition import load_contracts
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.topic import current_state
    from ingest.runtime.places import Places

    (contract,) = load_contracts(project, [table])
    places = Places(lake, checkpoints, contract.pipeline, contract.table)
    kafka = KafkaOptions.from_environment(bootstrap_servers)
    ask = partial(current_state, kafka, contract.source.topic, contract.source.isolation_level)

    if swap:
        swapped = _swap(contract, places, ask, master, keep_shadow=keep_shadow)
        if as_json:
            print_json("rebuild", ok=True, tables=[{"table": places.name, **vars(swapped)}])
        else:
            print(f"{places.name}: {swapped.rows_before:,} rows were replaced by {swapped.rows_after:,} in epoch {swapped.epoch}")
            print(f"  version {swapped.version_before} of the target is the former content, until VACUUM removes it")
        return
    carried = _fill(contract, places, ask, kafka, master, restart=restart, dry_run=dry_run)
    if as_json:
        print_json("rebuild", ok=True, tables=[{"table": places.name, "dry_run": dry_run, **(vars(carried) if carried else {})}])
        return
    if carried is not None:
        print_carried(places.name, carried)
    if not dry_run:
        from ingest.rebuild.shadow import shadow_of

        shadow = shadow_of(places)
        print(f"{places.name}: the shadow is in {shadow.root}. Next:")
        print(f"  ingest compare {places.target} {shadow.target}")
        print(f"  ingest rebuild {places.name} --swap")


def _fill(
    contract: Contract,
    places: Places,
    ask: Callable[[], TopicState],
    kafka: KafkaOptions,
    master: str,
    *,
    restart: bool,
    dry_run: bool,
) -> Carried | None:
    """Begin the shadow unless there is one, then read Kafka to its end. Returns what only the old tables have, if it was looked at."""
    from ingest.cli.progress import display
    from ingest.pipeline.application import Application
    from ingest.pipeline.table_query import Trigger
    from ingest.pipeline.writing_session import writing_session
    from ingest.rebuild import shadow as shadows

    shadow, carried = shadows.shadow_of(places), None
    with writing_session(shadow, master, "rebuild") as session:
        shadows.refuse_missing(session, places)
        if dry_run:
            rows, records, earliest = shadows.only_here(session, places, ask())
            return shadows.Carried(rows.count(), records.count(), earliest)
        if restart or not shadows.is_begun(session, places):
            carried = shadows.begin(session, contract, places, ask)
    job = Application([contract], shadow.lake, shadow.checkpoints, kafka, master, Trigger(once=True), None, None)
    with display(quiet=True) as shown:
        (result,) = job.execute(shown)
    if result.error is not None:
        raise result.error
    print(f"{places.name}: the shadow read {result.records_read:,} records, {result.inserted:,} became rows", file=sys.stderr)
    return carried


def _swap(contract: Contract, places: Places, ask: Callable[[], TopicState], master: str, *, keep_shadow: bool) -> Swapped:
    from ingest.pipeline import table_lock
    from ingest.pipeline.writing_session import writing_session
    from ingest.rebuild import shadow as shadows
    from ingest.rebuild.swap import swap

    table_lock.wait_for(places)
    with writing_session(places, master, "rebuild") as session, table_lock.holding(session, shadows.shadow_of(places)):
        done = swap(session, contract, places, ask)
        if not keep_shadow:
            shadows.remove_shadow(session, places)
    return done


def print_carried(name: str, carried: Carried) -> None:
    """Print what Kafka no longer holds."""
    earliest = " ".join(f"{partition}:{first}" for partition, first in sorted(carried.earliest.items()))
    print(f"{name}: Kafka begins at {earliest}. Only the old tables have {carried.rows:,} rows and {carried.records:,} quarantined records")
    print("  before that; the shadow takes them over as they are")
