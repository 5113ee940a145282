"""The options that several verbs share. Most can also be set by an environment variable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Project = Annotated[Path, typer.Option("--project", envvar="INGEST_PROJECT", help="Folder that contains tables/ and expectations/.")]
Lake = Annotated[str, typer.Option("--lake", envvar="INGEST_LAKE", help="Folder or URI of the Delta tables.")]
Checkpoints = Annotated[str, typer.Option("--checkpoints", envvar="INGEST_CHECKPOINTS", help="Folder or URI of the streaming checkpoints.")]
BootstrapServers = Annotated[
    str, typer.Option("--bootstrap-servers", envvar="INGEST_BOOTSTRAP_SERVERS", help="Kafka brokers as host:port, comma-separated.")
]
Master = Annotated[str, typer.Option("--master", envvar="INGEST_MASTER", help="Spark master; the default runs Spark inside this process.")]
DatabaseUrl = Annotated[
    str, typer.Option("--database-url", envvar="INGEST_DATABASE_URL", help="PostgreSQL as a SQLAlchemy URL.", show_default=False)
]
Figures = Annotated[
    Path | None, typer.Option("--figures", help="Figures for the control totals: a CSV or NDJSON file (.csv, .ndjson, .jsonl).")
]
FiguresTopic = Annotated[str | None, typer.Option("--figures-topic", help="Figures as a topic: JSON, the newest record of each key.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

PROJECT_DEFAULT = Path(".")
LAKE_DEFAULT = "lake"
CHECKPOINTS_DEFAULT = "checkpoints"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
# Where `ingest postgres start` listens, and where it keeps the password.
DATABASE_DEFAULT = "postgresql://postgres@127.0.0.1:5432/postgres?passfile=.postgres/passfile"
MASTER_DEFAULT = "local[*]"
