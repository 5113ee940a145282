"""`ingest audit`: compare a Delta table that others wrote with its topic."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.delta.delta_sql import Engine
    from ingest.verify.audit.audit_run import Compared
    from ingest.verify.audit.audited_table import AuditedTable
    from ingest.verify.audit.findings import Audit

T = TypeVar("T")

# Faults of each kind on the screen and in the JSON document. --out has all of them.
SHOWN = 5


class Level(StrEnum):
    """The isolation levels of Kafka's readers."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="Folder or URI of the Delta table.")]
TopicName = Annotated[str, typer.Option("--topic", help="The topic that the table was written from.")]
Partition = Annotated[str | None, typer.Option("--partition-column", help="Column of a row's partition (default: a usual name).")]
Offset = Annotated[str | None, typer.Option("--offset-column", help="Column of a row's offset (default: a usual name).")]
TopicColumn = Annotated[str | None, typer.Option("--topic-column", help="Column of a row's topic, if the table has rows of several.")]
EventId = Annotated[str | None, typer.Option("--event-id", metavar="COLUMNS", help="Columns of the event id, comma-separated.")]
OfRecord = Annotated[str | None, typer.Option("--record-id", help="Where records have it: '$.field', key or header:NAME.")]
Isolation = Annotated[Level, typer.Option("--isolation", help="What the table's writer should have read.")]
From = Annotated[str | None, typer.Option("--from", help="First offset that the table should contain, or 0:1200,1:900.")]
To = Annotated[str | None, typer.Option("--to", help="End of what it should contain: an offset, 0:1200,1:900, or end.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write all faults to this file: .csv or .parquet.")]
WithSpark = Annotated[bool, typer.Option("--spark", help="Read the table through Spark (default: only if it has to).")]


@app.command()
def audit(
    table: TablePath,
    topic: TopicName,
    partition_column: Partition = None,
    offset_column: Offset = None,
    topic_column: TopicColumn = None,
    event_id: EventId = None,
    record_id: OfRecord = None,
    isolation: Isolation = Level.COMMITTED,
    start: From = None,
    stop: To = None,
    out: Out = None,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    with_spark: WithSpark = False,
    master: o.Master = o.MASTER_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Compare a Delta table of any writer with its topic. It says what is lost, doubled, or let in from
    aborted transactions, and writes nothing. Exit 1: the table differs from the topic.

    Example: ingest audit lake/orders --topic orders --event-id order_id --record-id '$.order_id'
    """
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.log.fetch import TopicReader
    from ingest.kafka.topic import describe
    from ingest.verify.audit.audit_run import audit as run
    from ingest.verify.audit.audit_run import compared
    from ingest.verify.audit.audited_table import AuditedTable
    from ingest.verify.audit.reach import Reach

    reach, write = Reach.parse(start, stop), _writer(out)
    kafka = KafkaOptions.from_environment(bootstrap_servers)
    describe(kafka, topic)  # its errors are more specific than the reader's

    def done(engine: Engine) -> tuple[AuditedTable, Compared, Audit]:
        opened = AuditedTable.open(engine, table)
        what = compared(opened, partition_column, offset_column, topic_column, event_id, record_id)
        with TopicReader(kafka, topic) as reader:
            return opened, what, run(opened, what, reader, isolation.value, reach, None if out else SHOWN)

    opened, what, found = with_engine(table, done, master, with_spark=with_spark)
    if write is not None:
        write(found.found)
    if as_json:
        print_json("audit", ok=found.ok, tables=[as_row(opened, what, found, topic)])
    else:
        print_audit(opened, what, found, topic)
        if out is not None:
            out_line(f"  all {found.found.num_rows:,} lines of faults are in {out}")
    if not found.ok:
        raise typer.Exit(1)


def with_engine(location: str, ask: Callable[[Engine], T], master: str, *, with_spark: bool = False, verb: str = "audit") -> T:
    """`ask(engine)` without a JVM; through Spark if `with_spark`, for a table elsewhere, or if deltalake cannot read the table."""

    from ingest.delta import delta_sql
    from ingest.runtime import spark
    from ingest.runtime.files import is_local
    from ingest.runtime.places import spark_log

    if is_local(location) and not with_spark:
        try:
            return ask(delta_sql.DataFusion())
        except delta_sql.Unreadable as error:
            err_line(f"ingest: {location} is read through Spark, because deltalake cannot read it: {error.why}")
    with spark.session(master, spark_log("s3:", verb)) as session:  # a log in the working folder: nothing is written to the table
        return ask(delta_sql.Spark(session))


def _writer(out: Path | None) -> Any:
    """The function that writes the list. Raises InvalidInput AUDIT_OUT before the minutes that an audit may take."""
    from ingest.runtime.errors import InvalidInput

    if out is None:
        return None
    if out.suffix not in (".csv", ".parquet") or not out.absolute().parent.is_dir():
        expected = "a file that ends with .csv or .parquet, in an existing folder."
        raise InvalidInput("AUDIT_OUT", f"--out {out}.", expected=expected, remedy="correct --out.")

    def write(found: pa.Table) -> None:
        from ingest.runtime.files import PRIVATE, replacing

        with replacing(out, PRIVATE) as file:  # it names event ids
            if out.suffix == ".csv":
                import pyarrow.csv as csv

                csv.write_csv(found, file)
            else:
                import pyarrow.parquet as parquet

                parquet.write_table(found, file)

    return write


def as_row(table: AuditedTable, what: Compared, found: Audit, topic: str) -> dict[str, Any]:
    """The table's entry in the JSON document."""
    from ingest.verify.audit.findings import FAULTS

    by: dict[str, Any] = {"by": "position" if what.positions else "event id", "topic_column": what.topic_column}
    if what.positions:
        by |= {"partition_column": what.positions.partition, "offset_column": what.positions.offset, "recognised": what.usual}
    if what.record_id:
        by |= {"event_id": what.ids, "record_id": what.record_id.text}
    counts = {fault: {"number": sum(found.counts(fault).values()), "why": found.counts(fault)} for fault in FAULTS}
    examples = {fault.replace(" ", "_"): count | {"first": found.lines(fault, SHOWN)} for fault, count in counts.items()}
    return {
        **{"table": table.at.path, "version": table.at.version, "topic": topic, "ok": found.ok, "complete": found.complete, **by},
        **{"records": found.records, "rows": found.rows, **examples},
        **{"gaps": dict(found.gaps), "expired_offsets": found.expired, "unverifiable_rows": dict(found.unverifiable)},
        **{"not_read_yet": dict(found.not_read), "copies_dropped": found.dropped, "rows_without_key": found.rows_without_key},
        **{"rows_of_other_topics": found.rows_of_other_topics, "records_without_id": found.records_without_id},
        "partitions_without_rows": list(found.partitions_without_rows),
    }


def print_audit(table: AuditedTable, what: Compared, found: Audit, topic: str) -> None:
    """Print the verdict, each fault with its reasons and first examples, and what is no fault."""
    from ingest.verify.audit.findings import FAULTS

    if what.positions:
        how = f"by position: {what.positions.partition}, {what.positions.offset}{' (recognised by name)' if what.usual else ''}"
    else:
        how = f"by event id: {', '.join(what.ids)} = {what.record_id.text if what.record_id else ''}"
    verdict = "NOT EXACT" if not found.ok else "EXACT" if found.complete else "EXACT as far as Kafka reaches"
    out_line(f"{table.at.path} version {table.at.version} against {topic}: {verdict} ({how})")
    out_line(f"  records      {found.records:>14,} that the table should have, {found.rows:,} rows that it has")
    for fault, meaning in FAULTS.items():
        counts = found.counts(fault)
        number = sum(counts.values())
        if number or fault in ("lost", "doubled", "aborted"):
            out_line(f"  {fault:<13}{number:>14,} {meaning}")
        for why, count in counts.items():
            out_line(f"  {'':<13}{count:>14,} {why}")
        for line in _examples(found, fault, topic):
            out_line(f"  ! {fault}: {line}")
    for number, text in _notes(found, what):
        out_line(f"  {text[0]:<13}{number:>14,} {text[1]}")


def _examples(found: Audit, fault: Any, topic: str) -> list[str]:
    """The first faults, consecutive lost offsets as one range."""
    from ingest.runtime.printable import printable

    ranges: list[list[dict[str, Any]]] = []
    for line in found.lines(fault, 100_000 if fault == "lost" else SHOWN):
        last = ranges[-1][-1] if ranges else None
        joined = fault == "lost" and last and not line["event_id"] and line["offset"] == last["offset"] + 1
        if joined and last and line["partition"] == last["partition"]:
            ranges[-1].append(line)
        elif len(ranges) == SHOWN:
            break
        else:
            ranges.append([line])
    texts = []
    for each in ranges:
        first, last = each[0], each[-1]
        place = "" if first["partition"] is None else f"{topic}[{first['partition']}]@{first['offset']}"
        until = f" to {last['offset']}" if last is not first else ""
        id = printable(first["event_id"], 60) if first["event_id"] else ""
        rows = f"{first['rows']} row{'s' if first['rows'] > 1 else ''}" if fault != "lost" else ""
        texts.append(", ".join(filter(None, (place + until, id, rows))))
    return texts


def _notes(found: Audit, what: Compared) -> list[tuple[int, tuple[str, str]]]:
    """Numbers that are no faults, each with a name and a sentence."""
    unread = ", ".join(f"partition {partition}: {number:,}" for partition, number in sorted(found.not_read.items()))
    empty = f"; no row of partition {', '.join(map(str, found.partitions_without_rows))}" if found.partitions_without_rows else ""
    key = "position" if what.positions else "event id"
    nothing = found.records if not found.rows else 0
    notes = [
        (nothing, ("no rows", "records, but the table has no row of the topic: there is nothing to compare")),
        (
            sum(found.not_read.values()),
            ("not read yet", f"records after the table's last row ({unread}{empty}); --to end counts them as lost"),
        ),
        (found.dropped, ("copies", "records without a row whose event id has one: the writer dropped them")),
        (sum(found.gaps.values()), ("gaps", "offsets without a record to read: " + ", ".join(f"{k} {n:,}" for k, n in found.gaps.items()))),
        (found.expired, ("expired", "offsets that Kafka no longer has: nobody can say what they were")),
        *((number, ("unverifiable", f"rows: {why}")) for why, number in found.unverifiable.items()),
        (found.rows_without_key, ("no key", f"rows with NULL as {key}: not compared")),
        (found.records_without_id, ("no id", "records without the event id: not compared")),
        (found.rows_of_other_topics, ("other topics", "rows")),
    ]
    return [(number, text) for number, text in notes if number]
