"""The options that several verbs share. Most can also be set by an environment variable."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.contract.definition import Contract
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.runtime.places import Places

T = TypeVar("T")

Tables = Annotated[list[str] | None, typer.Argument(help="Tables (name or pipeline.name); default: all of tables/.")]
Table = Annotated[str, typer.Argument(help="The table (name or pipeline.name).")]
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


@dataclasses.dataclass(frozen=True)
class Environment:
    """The project, the lake and the services of a command: the values of its options, defaults for those that it does not have."""

    project: Project = PROJECT_DEFAULT
    lake: Lake = LAKE_DEFAULT
    checkpoints: Checkpoints = CHECKPOINTS_DEFAULT
    bootstrap_servers: BootstrapServers = BOOTSTRAP_DEFAULT
    master: Master = MASTER_DEFAULT
    database_url: DatabaseUrl = DATABASE_DEFAULT

    @property
    def is_local(self) -> bool:
        """Whether lake and checkpoints are on this machine."""
        from ingest.runtime.files import is_local

        return is_local(self.lake) and is_local(self.checkpoints)

    @property
    def kafka(self) -> KafkaOptions:
        """The connection to Kafka. Raises as `KafkaOptions.from_environment`."""
        from ingest.kafka.kafka_options import KafkaOptions

        return KafkaOptions.from_environment(self.bootstrap_servers)

    def contracts(self, tables: Sequence[str] | None = None) -> tuple[Contract, ...]:
        """The contracts of these tables (default: all). Raises as `load_contracts`."""
        from ingest.contract.definition import load_contracts

        return load_contracts(self.project, tables or [])

    def contract(self, table: str) -> Contract:
        """The contract of one table. Raises as `load_contracts`."""
        (found,) = self.contracts([table])
        return found

    def places(self, contract: Contract) -> Places:
        """The places of a contract's table. Raises as `Places`."""
        from ingest.runtime.places import Places

        return Places(self.lake, self.checkpoints, contract.pipeline, contract.table)

    def session(self, verb: str, **more: Any) -> AbstractContextManager[SparkSession]:
        """A Spark session whose output goes to the verb's log. Raises, and takes `more`, as `spark.session`."""
        from ingest.runtime import spark
        from ingest.runtime.places import spark_log

        return spark.session(self.master, spark_log(self.lake, verb), **more)


def verb(group: typer.Typer, *more: str, name: str | None = None) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add a verb to a group. Each of its parameters whose type is a dataclass stands for one option a field, and gets their values.

    An Environment stands for --project, --lake and those of its options that `more` names; with `database_url` for the latter alone.
    """
    names = more if "database_url" in more else ("project", "lake", *more)

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        taken: dict[str, Any] = {}
        own: list[inspect.Parameter] = []
        environment: list[inspect.Parameter] = []
        last: list[inspect.Parameter] = []
        for each in inspect.signature(function, eval_str=True).parameters.values():
            if not dataclasses.is_dataclass(each.annotation):
                (last if each.name == "as_json" else own).append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
                continue
            taken[each.name], types = each.annotation, get_type_hints(each.annotation, include_extras=True)
            for field in dataclasses.fields(each.annotation):
                option = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
                if each.annotation is not Environment:
                    own.append(option)
                elif field.name in names:
                    environment.append(option)

        @wraps(function)
        def called(**given: Any) -> T:
            made = {}
            for parameter, kind in taken.items():
                fields = names if kind is Environment else [each.name for each in dataclasses.fields(kind)]
                made[parameter] = kind(**{name: given.pop(name) for name in fields if name in given})
            return function(**made, **given)

        parameters = [*own, *environment, *last]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        vars(called)["__signature__"] = inspect.Signature(parameters)
        return group.command(name)(called)

    return decorate
