"""`ingest verify`: prove that every record is accounted for (I4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_verdict
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.contract.definition import Contract
    from ingest.delta.delta_sql import Engine
    from ingest.kafka.offsets import OffsetRange
    from ingest.kafka.topic import Topic
    from ingest.runtime.errors import IngestError
    from ingest.runtime.places import Places
    from ingest.verify.against_kafka import Reread
    from ingest.verify.count import TableRows
    from ingest.verify.verdict import Verified

T = TypeVar("T")


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def verify(
    env: o.Environment,
    tables: o.Tables = None,
    against_kafka: Annotated[
        bool, typer.Option("--against-kafka", help="Re-read the ranges of all batches from Kafka and locate each record.")
    ] = False,
    with_spark: Annotated[
        bool, typer.Option("--spark", help="Count through Spark (default: only if the lake is not on a disk of this machine).")
    ] = False,
    as_json: o.Json = False,
) -> int:
    """Count the rows of every batch and compare them with offsets and ledger. Exit 1: the balance does not hold.

    Example: ingest verify orders --against-kafka
    """
    found, errors = verify_tables(env, tables, "verify", lambda *given: given[-1], against_kafka=against_kafka, with_spark=with_spark)
    wrong = any(each.findings for each in found)
    return print_verdict("verify", found, errors, as_json=as_json, as_row=as_row, show=print_balance, code=int(wrong))


def verify_tables(
    env: o.Environment,
    tables: list[str] | None,
    verb: str,
    then: Callable[[Engine, Contract, Places, Verified], T],
    *,
    against_kafka: bool,
    with_spark: bool,
) -> tuple[list[T], dict[str, IngestError]]:
    """Verify the tables in turn: the results of `then`, and the errors by table. With `against_kafka` the topics are read again.

    `then` gets each verified table while the engine that counted it can still be used; an IngestError of it is the table's error. One
    table's error does not stop the others. Raises the error of the first table if every topic is unreachable.
    """
    from ingest.delta import delta_sql
    from ingest.kafka.topic import topics_of
    from ingest.runtime import spark
    from ingest.runtime.errors import IngestError
    from ingest.runtime.files import environment_error
    from ingest.runtime.places import spark_log
    from ingest.verify.against_kafka import against_kafka as reread
    from ingest.verify.verdict import verify as verify_table

    contracts, kafka = env.contracts(tables), env.kafka
    found: list[T] = []
    errors: dict[str, IngestError] = {}
    topics: dict[str, tuple[Topic, ...]] = {}
    for contract in contracts if against_kafka else ():
        try:
            topics[contract.name] = topics_of(kafka, contract.source)  # fail before the seconds that Spark takes
        except IngestError as error:
            errors[contract.name] = error
    if len(errors) == len(contracts):
        raise errors[contracts[0].name]
    here = env.is_local and not with_spark
    sessions: list[SparkSession] = []

    def session() -> SparkSession:
        """Start Spark on the first call: it takes half a minute, and most runs of `ingest verify` do not need it."""
        if not sessions:
            sessions.append(spark.start(env.master, spark_log(env.lake, verb)))
        return sessions[0]

    def proven(contract: Contract, places: Places) -> tuple[delta_sql.Engine, Verified]:
        if here:
            try:
                return (without_jvm := delta_sql.DataFusion()), verify_table(without_jvm, contract, places)
            except delta_sql.Unreadable as error:
                err_line(f"ingest: {contract.name} is counted through Spark, because deltalake cannot read it: {error.why}")
        return (with_jvm := delta_sql.Spark(session())), verify_table(with_jvm, contract, places)

    try:
        for contract in contracts:
            if contract.name in errors:
                continue
            places = env.places(contract)
            try:
                engine, seen = proven(contract, places)
                if against_kafka:
                    again = reread(engine, session, contract, places, kafka, topics[contract.name], seen.books)
                    seen = dataclasses.replace(seen, kafka=again, findings=(*seen.findings, *again.findings))
                found.append(then(engine, contract, places, seen))
            except IngestError as error:
                errors[contract.name] = error
            except Exception as error:
                if any(spark.jvm_exit(started) is not None for started in sessions):
                    raise
                from ingest.kafka.query_failure import stopped

                errors[contract.name] = environment_error(error) or stopped(contract, kafka, error)
    finally:
        for started in sessions:
            spark.end(started)
    return found, errors


def print_kafka(reread: Reread) -> None:
    """Print the result of re-reading the topic: where the records are, and the reasons of the gaps."""
    removed = f" + removed {reread.removed:,}" if reread.removed else ""
    places = f"in target {reread.in_target:,} + in quarantine {reread.in_quarantine:,} + duplicate {reread.duplicate:,}{removed}"
    out_line(f"  in Kafka    {reread.records:>14,} = {places}")
    if reread.gaps:
        out_line(f"  gaps        {sum(reread.gaps.values()):>14,} = {' + '.join(f'{kind} {n:,}' for kind, n in reread.gaps.items())}")
    if reread.unverifiable:
        out_line(f"  unverifiable{reread.unverifiable:>14,} offsets that Kafka no longer holds")


def as_row(verified: Verified) -> dict[str, Any]:
    """The table's entry in the JSON document, without its books.

    Offsets are lists: topic (if there are several), partition, start, end.
    """
    from ingest.verify.balance import topic_of

    def offsets(at: OffsetRange) -> list[str | int]:
        topic = topic_of(verified.books, at.source)
        return [*([topic] if topic else []), at.partition, at.start, at.end]

    shown = {each.name: getattr(verified, each.name) for each in dataclasses.fields(verified) if each.name != "books"}
    shown |= {name: [*map(offsets, shown[name])] for name in ("pending", "gaps_accepted")}
    return {**_plain(shown), "balanced": not verified.findings}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def print_balance(verified: Verified) -> None:
    """Print the balance as an accountant reads it: each total, and the parts that add up to it."""
    from ingest.verify.balance import named

    t = verified.total
    epochs = f" of {verified.epochs} epochs" if verified.epochs > 1 else ""
    out_line(f"{verified.table}: {'BALANCED' if not verified.findings else 'DOES NOT BALANCE'} ({t.batches} batches{epochs})")
    out_line(f"  offsets     {t.offsets:>14,} = read {t.read:,} + gap {t.gap:,}")
    out_line(
        f"  read        {t.read:>14,} = inserted {t.inserted:,} + present {t.present:,} + duplicate {t.duplicate:,}"
        f" + quarantined {t.quarantined:,}"
    )
    out_line(f"  in target   {_sum('inserted', verified.target, t.replayed)}")
    out_line(f"  quarantine  {_sum('quarantined', verified.quarantine)}")
    if verified.kafka is not None:
        print_kafka(verified.kafka)
    if verified.rebuilt:
        out_line(
            f"  counted from epoch {verified.rebuilt} on: a rebuild replaced all earlier rows, and what was wrong with them is history"
        )
    for commit in verified.deletes:
        out_line(f"  removed     {commit.rows:>14,} by DELETE, version {commit.version} of the {commit.table}")
    for each in verified.uncommitted:
        out_line(f"  uncommitted {each.records:>14,} quarantined by epoch {each.epoch} batch {each.batch}, still running or cut off")
    for label, ranges, why in (
        ("to re-read ", verified.pending, "the next runs read them, after a seek"),
        ("left out   ", verified.gaps_accepted, "accepted by a seek"),
    ):
        for at in ranges:
            out_line(f"  {label} {len(at):>14,} offsets of {named(verified.books, at.of)} [{at.start}, {at.end}): {why}")
    if verified.unledgered:
        out_line(f"  the ledger lacks {verified.unledgered} statements that the tables' logs have; the next run adds them")
    for finding in verified.findings:
        out_line(f"  ! {finding}")


def _sum(written: str, held: TableRows, replayed: int = 0) -> str:
    """The number of rows found, as the sum of the rows that batches wrote (labelled `written`), replays, and the differences since."""
    more = {"replayed": replayed, **held.more}
    parts = [f" - {name} {number:,}" for name, number in held.less.items() if number] + [
        f" + {name} {number:,}" for name, number in more.items() if number
    ]
    return f"{held.found:>14,} = {written} {held.put - replayed:,}{''.join(parts)}"
