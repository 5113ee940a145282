"""`ingest rebuild`: build a table anew beside the old one, and swap it in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.delta.table_writer import TableWriter
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.recovery.state_reader import Broker
    from ingest.repair.shadow import Carried
    from ingest.repair.swap import Swapped
    from ingest.runtime.places import Places


@app.command()
def rebuild(
    table: Annotated[str, typer.Argument(help="The table (name or pipeline.name).")],
    swap: Annotated[bool, typer.Option("--swap", help="Put the shadow in the table's place. Stop the table's run first.")] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Remove the shadow first, and build it anew.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what only the old table has, and change nothing.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Remove the shadow, and do nothing else.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Let --swap drop rows that the shadow lacks. The number is kept in the commit.")
    ] = False,
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
    from ingest.kafka.topic import current_states
    from ingest.runtime.errors import InvalidInput
    from ingest.runtime.places import Places

    given = [f"--{name}" for name, is_set in (("swap", swap), ("restart", restart), ("dry-run", dry_run), ("discard", discard)) if is_set]
    if len(given) > 1 or (accept_loss and not swap):
        raise InvalidInput(
            "OPTIONS_CONTRADICT",
            f"{' and '.join([*given, *(['--accept-loss'] if accept_loss else [])])} were given.",
            expected="one of --swap, --restart, --dry-run and --discard; --accept-loss only with --swap.",
            remedy="leave the others out.",
        )
    (contract,) = load_contracts(project, [table])
    places = Places(lake, checkpoints, contract.pipeline, contract.table)
    kafka = KafkaOptions.from_environment(bootstrap_servers)
    broker = partial(current_states, kafka, contract.source)

    if discard:
        _discard(contract, places, master)
        if as_json:
            print_json("rebuild", ok=True, tables=[{"table": places.name, "discarded": True}])
        else:
            out_line(f"{places.name}: there is no shadow now")
        return
    if swap:
        swapped = _swap(contract, places, broker, master, accept_loss=accept_loss)
        if as_json:
            print_json("rebuild", ok=True, tables=[{"table": places.name, **vars(swapped)}])
        else:
            print_swapped(places.name, swapped)
        return
    carried = _fill(contract, places, broker, kafka, master, restart=restart, dry_run=dry_run)
    if as_json:
        print_json("rebuild", ok=True, tables=[{"table": places.name, "dry_run": dry_run, **(vars(carried) if carried else {})}])
        return
    if carried is not None:
        print_carried(places.name, carried)
    if not dry_run:
        from ingest.repair.shadow import shadow_of

        shadow = shadow_of(places)
        out_line(f"{places.name}: the shadow is in {shadow.root}. Next:")
        out_line(f"  ingest compare {places.target} {shadow.target}")
        out_line(f"  ingest rebuild {places.name} --swap")


def _fill(
    contract: Contract,
    places: Places,
    broker: Broker,
    kafka: KafkaOptions,
    master: str,
    *,
    restart: bool,
    dry_run: bool,
) -> Carried | None:
    """Begin the shadow unless there is one, then read Kafka to its end. Returns what only the old tables have, if it was looked at."""
    from ingest.cli.progress import display
    from ingest.repair import shadow as shadows
    from ingest.repair.swap import refuse_swapped
    from ingest.run.application import Application
    from ingest.run.table_query import Trigger
    from ingest.run.writing_session import with_writer, writing_session
    from ingest.runtime.errors import Refused

    shadow, carried = shadows.shadow_of(places), None
    if dry_run:

        def looked(writer: TableWriter) -> Carried:
            shadows.refuse_missing(writer.session, places)
            return shadows.look(writer.session, contract, places, broker)

        return with_writer(contract, places, master, "rebuild", looked, only_look=True)
    with writing_session(shadow, master, "rebuild") as session:
        shadows.refuse_missing(session, places)
        refuse_swapped(session, places)
        if restart or not shadows.is_begun(session, places):
            carried = shadows.begin(session, contract, places, broker)
    job = Application([contract], shadow.lake, shadow.checkpoints, kafka, master, Trigger(once=True), None, None)
    with display(quiet=True) as shown:
        (result,) = job.execute(shown)
    if isinstance(result.error, Refused):  # its remedy would be one for the table itself
        error, remedy = result.error, f"`ingest rebuild {places.name} --restart` builds the shadow anew."
        raise Refused(error.code, f"the shadow: {error.found}", expected=error.expected, remedy=remedy) from error
    if result.error is not None:
        raise result.error
    err_line(f"{places.name}: the shadow read {result.records_read:,} records, {result.inserted:,} became rows")
    return carried


def _swap(contract: Contract, places: Places, broker: Broker, master: str, *, accept_loss: bool) -> Swapped:
    from ingest.repair import shadow as shadows
    from ingest.repair.swap import swap
    from ingest.run import table_lock
    from ingest.run.writing_session import with_writer

    def swapped(writer: TableWriter) -> Swapped:
        with table_lock.holding(writer.session, shadows.shadow_of(places)):
            done = swap(writer, contract, places, broker, accept_loss=accept_loss)
            shadows.remove_shadow(writer.session, places)
        return done

    for each in (places, shadows.shadow_of(places)):
        table_lock.wait_for(each)
    return with_writer(contract, places, master, "rebuild", swapped)


def _discard(contract: Contract, places: Places, master: str) -> None:
    from ingest.repair import shadow as shadows
    from ingest.repair.swap import refuse_swapped
    from ingest.run.writing_session import with_writer

    def discarded(writer: TableWriter) -> None:
        refuse_swapped(writer.session, places)
        shadows.remove_shadow(writer.session, places)

    with_writer(contract, shadows.shadow_of(places), master, "rebuild", discarded)


def print_carried(name: str, carried: Carried) -> None:
    """Print what Kafka no longer holds."""
    starts = " ".join(f"{partition}:{first}" for partition, first in carried.starts.items())
    out_line(
        f"{name}: Kafka begins at {starts}. Only the old tables have {carried.rows:,} rows and {carried.records:,} quarantined records"
    )
    out_line("  before that; the shadow takes them over as they are")
    if carried.doubled:
        out_line(f"  {carried.doubled:,} more rows there have an event id that another row has; they are left out")


def print_swapped(name: str, swapped: Swapped) -> None:
    """Print the outcome of a swap."""
    out_line(f"{name}: {swapped.rows_before:,} rows were replaced by {swapped.rows_after:,} in epoch {swapped.epoch}")
    out_line(f"  version {swapped.version_before} of the target is the former content, until VACUUM removes it")
    if swapped.lost:
        out_line(f"  {swapped.lost:,} rows of the old table are not in the new one")
    for each in swapped.findings_before:
        out_line(f"  verify found in the old table: {each}")
    if swapped.findings_before:
        out_line("  verify counts from the rebuild on, so it will not report this again. What Kafka no longer had stays lost")
