"""`ingest log`: print a topic's record batches, transaction markers and holes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line
from ingest.runtime.printable import aligned

if TYPE_CHECKING:
    from ingest.kafka.log.log_view import LogLine, PartitionView

TopicName = Annotated[str, typer.Argument(help="The topic's name in Kafka.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Partition to show (default: all).")]
From = Annotated[int | None, typer.Option("--from", min=0, help="First offset to show (default: the newest batches).")]
To = Annotated[int | None, typer.Option("--to", min=0, help="Offset at which to stop, exclusive (default: the end of the log).")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum lines per partition.")]


@app.command()
def log(
    topic: TopicName,
    partition: Partition = None,
    start: From = None,
    end: To = None,
    limit: Limit = 50,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Show record batches, transaction markers and gaps of a topic. Each transaction is committed, aborted or
    open.

    Example: ingest log shop.orders --partition 0 --from 1200
    """
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.kafka.log.fetch import TopicReader
    from ingest.kafka.log.log_view import view
    from ingest.kafka.topic import describe
    from ingest.runtime.errors import InvalidInput

    kafka = KafkaOptions.from_environment(bootstrap_servers)
    describe(kafka, topic)  # first: it reports a refused login or certificate, where the reader only times out
    with TopicReader(kafka, topic) as reader:
        if partition is None and (start, end) != (None, None) and len(reader.partitions) > 1:
            raise InvalidInput(
                "PARTITION_MISSING",
                f"--from and --to were given, and topic {topic} has {len(reader.partitions)} partitions.",
                expected="the partition of these offsets.",
                remedy="add --partition.",
            )
        wanted = reader.partitions if partition is None else (partition,)
        found = [view(reader, each, start=start, end=end, limit=limit) for each in wanted]
    if as_json:
        print_json("log", ok=True, topic=topic, partitions=[_as_json(each) for each in found])
    else:
        for number, each in enumerate(found):
            if number:
                out_line("")
            _print(topic, each)


def _print(topic: str, shown: PartitionView) -> None:
    b = shown.bounds
    out_line(
        f"{topic} partition {shown.partition}: log start {b.log_start} · last stable {b.last_stable} · high watermark {b.high_watermark}"
    )
    rows = [_cells(line) for line in shown.lines]
    if not rows:
        out_line("  nothing here")
        return
    titles = ("offsets", "kind", "records", "bytes", "time", "codec", "producer", "transaction")
    for line in aligned([titles, *rows], right=(titles.index("records"), titles.index("bytes"))):
        out_line(f"  {line}")
    if shown.more:
        out_line(f"  … continues at {shown.lines[-1].last + 1}: use --from {shown.lines[-1].last + 1} or a larger --limit")


def _cells(line: LogLine) -> tuple[str, ...]:
    offsets = str(line.first) if line.first == line.last else f"{line.first}–{line.last}"
    span = line.last - line.first + 1
    if line.kind in ("hole", "expired"):
        why = "removed by compaction" if line.kind == "hole" else "below the log's start"
        return (offsets, line.kind, "", "", "", "", "", f"{span} offsets: {why}")
    records = str(line.records) if line.records == span else f"{line.records} of {span}"
    time = line.time.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if line.time else "–"
    codec = line.compression if line.kind == "data" else ""
    return (offsets, line.kind, records, str(line.size_bytes), time, codec, line.producer or "–", line.transaction or "–")


def _as_json(shown: PartitionView) -> dict[str, Any]:
    lines = [{**vars(line), "time": line.time.isoformat().replace("+00:00", "Z") if line.time else None} for line in shown.lines]
    b = shown.bounds
    bounds = {"log_start": b.log_start, "last_stable": b.last_stable, "high_watermark": b.high_watermark}
    return {"partition": shown.partition, **bounds, "lines": lines, "more": shown.more}
