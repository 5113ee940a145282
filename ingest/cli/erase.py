"""`ingest erase`: remove a person's data from a table, its quarantine, its samples and its old versions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.delta.table_writer import TableWriter
    from ingest.quality.audited_version import AuditedVersion
    from ingest.repair.erasure import Erased
    from ingest.repair.remains import Left
    from ingest.runtime.places import Places


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def erase(
    env: o.Environment,
    table: o.Table,
    where: Annotated[str, typer.Option("--where", help="SQL condition over the table's columns, such as customer_id = 4711.")],
    quarantine_where: Annotated[
        str | None,
        typer.Option("--quarantine-where", help="SQL condition over the quarantine's columns; `text` is the value as text."),
    ] = None,
    keep_history: Annotated[
        bool, typer.Option("--keep-history", help="Leave old versions to VACUUM's usual retention (`ingest maintain`).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be erased, and change nothing.")] = False,
    as_json: o.Json = False,
) -> None:
    """Erase rows, quarantined records, samples and old versions. Stop the table's run first.

    Kafka keeps its own copy, and a seek backwards would read it again: the output says how many records may still be there. It ends with
    the places that the command does not touch.

    Example: ingest erase orders --where "customer_id = 4711" --quarantine-where "text LIKE '%4711%'" --dry-run
    """
    from ingest.delta.delta_log import Logs
    from ingest.kafka.topic import current_states, settings_of
    from ingest.quality.audited_version import audit_state
    from ingest.recovery.state_reader import read_start_state
    from ingest.repair import erasure
    from ingest.repair.remains import left
    from ingest.run import table_lock
    from ingest.run.writing_session import with_writer
    from ingest.runtime.errors import IngestError, InvalidInput
    from ingest.runtime.files import files_of, is_local

    contract, kafka = env.contract(table), env.kafka
    places = env.places(contract)
    if not is_local(places.lake) and not (keep_history or dry_run):
        raise InvalidInput(
            "HISTORY_SHARED",
            f"{places.target} is not on a disk of this machine, so no lock shows that nobody else writes or reads it.",
            expected="--keep-history: old versions then go with the next `ingest maintain` after their retention.",
            remedy="add --keep-history; or run VACUUM by hand once every reader and writer has stopped.",
        )
    if not dry_run:
        table_lock.wait_for(places)

    def erased(writer: TableWriter) -> tuple[Erased, list[Left], AuditedVersion | None, str | None]:
        try:
            logs, broker = Logs.of(places, writer.session), partial(current_states, kafka, contract.source)
            topics, unknown = read_start_state(writer.session, places, logs, broker).topics, None
        except IngestError as error:  # the broker's faults do not keep a person's data
            topics, unknown = None, f"{error.code}: {error.found}"
        wanted = erasure.Erasure(where, quarantine_where, topics)
        done = erasure.look(writer, places, wanted) if dry_run else erasure.erase(writer, places, wanted, history=not keep_history)
        audited = audit_state(files_of(places.lake, writer.session), places).audited if done.history else None
        return done, left(writer.session, places, contract.source.shown), audited, unknown

    # The contract need not match the table: no statement depends on it.
    how: dict[str, Any] = {"only_look": dry_run, "discreet": True, "any_contract": True}
    done, places_left, audited, unknown = with_writer(contract, places, env.master, "erase", erased, **how)
    only, topics = contract.source.topic, dict.fromkeys(each.topic for each in done.in_kafka)
    policies = {topic: settings_of(kafka, topic, "cleanup.policy", "retention.ms") for topic in topics}
    if as_json:
        in_kafka = [vars(each) for each in done.in_kafka]
        row = {**vars(done), "in_kafka": in_kafka, "kafka_unknown": unknown, "topic_settings": policies.get(only, {}) if only else policies}
        row["audited_gone"] = audited.version if audited is not None else None
        row["left"] = [vars(each) for each in places_left]
        print_json("erase", ok=True, tables=[{"table": places.name, "dry_run": dry_run, **row}])
        return
    print_erased(places, done, dry_run=dry_run, quarantine=quarantine_where is not None)
    if audited is not None:
        out_line(f"  the audited version {audited.version} can no longer be read; the next `ingest check` that passes makes a new one")
    if unknown is not None:
        out_line(f"  what Kafka still holds is not known ({unknown})")
    for each in done.in_kafka:
        of = "" if each.topic == only else f" of topic {each.topic}"
        out_line(f"  Kafka may still hold {each.records:,} of them in partition {each.partition}{of}, up to offset {each.last_offset}")
    for topic, policy in policies.items():
        out_line(f"  {'' if topic == only else f'{topic}: '}{until(policy)}")
    out_line("  not touched, look there yourself:")
    for place in places_left:
        out_line(f"  - {place.place}: {place.what}")


def until(policy: dict[str, str]) -> str:
    """When Kafka deletes a record, in words, from the topic's settings cleanup.policy and retention.ms."""
    if not policy:
        return "the broker does not tell this user how long the topic keeps records"
    if policy.get("cleanup.policy") == "compact":
        return "the topic is compacted: Kafka keeps the newest record of a key until a tombstone with that key follows"
    days = int(policy.get("retention.ms", "-1")) / 86_400_000
    return (
        "the topic keeps records for ever" if days < 0 else f"the topic keeps records for {days:g} days, and until their segment is closed"
    )


def print_erased(places: Places, done: Erased, *, dry_run: bool, quarantine: bool) -> None:
    """Print what was erased, or would be."""
    from ingest.runtime.places import pages_folder

    verb = "would be erased" if dry_run else "erased"
    out_line(f"{places.name}: {done.rows:,} rows and {done.records:,} quarantined records {verb}")
    if not quarantine:
        out_line("  the quarantine was not searched: --quarantine-where names its records")
    if not dry_run:
        if done.samples:
            out_line("  values that the quality table kept of rows were removed")
        pages = {True: "were removed", False: "could NOT be removed: remove them by hand", None: "do not exist here"}[done.pages]
        out_line(f"  Data Docs in {pages_folder(places)} {pages}")
        out_line(f"  old versions {'deleted by VACUUM' if done.history else 'are kept until `ingest maintain` removes them'}")
