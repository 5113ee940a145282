"""`ingest init`: start a new project folder."""

from __future__ import annotations

import shlex
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The new folder; it may exist if it is empty or has only .git.")]
FromTopic = Annotated[str | None, typer.Option("--topic", help="Infer the contract from the first records of this topic.")]
FromOdcs = Annotated[Path | None, typer.Option("--odcs", metavar="FILE", help="Take the contracts from an ODCS v3 file.")]
Pipeline = Annotated[str | None, typer.Option("--pipeline", help="The pipeline's name (default: the folder's).", show_default=False)]
Records = Annotated[int, typer.Option("--records", min=1, help="How many records of the topic to read.")]


@app.command()
def init(
    folder: Folder,
    topic: FromTopic = None,
    odcs: FromOdcs = None,
    pipeline: Pipeline = None,
    records: Records = 1000,
    bootstrap_servers: o.BootstrapServers = o.BOOTSTRAP_DEFAULT,
    as_json: o.Json = False,
) -> None:
    """Start a new project folder from a topic, an ODCS file or an example. Overwrites nothing.

    Example: ingest init shop --topic orders --bootstrap-servers broker1:9092
    """
    from ingest.kafka.committed_records import committed_records
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.scaffold import new_project
    from ingest.scaffold.draft import EXAMPLE, identifier
    from ingest.scaffold.odcs_file import drafts_of
    from ingest.scaffold.sampled_columns import draft_of

    if topic and odcs:
        raise typer.BadParameter("--topic and --odcs both describe the table: name one of them.")
    new_project.refuse_filled(folder)
    drafts = drafts_of(odcs) if odcs else [EXAMPLE]
    if topic:
        read = islice(committed_records(KafkaOptions.from_environment(bootstrap_servers), topic), records)
        drafts = [draft_of(topic, ((record.key, record.value) for record in read))]
    name = identifier(pipeline or folder.resolve().name)
    files = new_project.write(folder, name, drafts, bootstrap_servers)
    if as_json:
        tables = [{"table": f"{name}.{each.table}", "ok": True, "notes": list(each.notes)} for each in drafts]
        print_json("init", ok=True, tables=tables, files=[str(file) for file in files])
        return
    out_line(f"{folder}: {len(files)} files")
    for draft in drafts:
        out_line(f"  tables/{draft.table}.yml: topic {draft.topic}, {len(draft.columns)} columns, event id {draft.event_id}")
        for note in draft.notes:
            out_line(f"    note: {note}")
    out_line(f"Read tables/, then: cd {shlex.quote(str(folder))} && make run verify check")
    out_line("If the command ingest is not on the PATH, run make setup before (README.md).")
