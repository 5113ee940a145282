"""The state of our tables in a database: migrate them, and refuse to work on tables that are missing, older, newer or changed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import DBAPIError

from ingest.delivery.database.database import connect
from ingest.delivery.database.database_errors import schema_changed, schema_missing, schema_newer
from ingest.delivery.database.tables import PREFIX, metadata
from ingest.runtime.errors import InvalidEnvironment

VERSION_TABLE: Final = f"{PREFIX}schema_version"
# Two starts may migrate at once; the second waits here and then finds nothing to do. Any number that nobody else locks.
_LOCK: Final = 6_872_300_914


def migrate(engine: Engine) -> tuple[str | None, str]:
    """Create or update our tables in one transaction. Returns the version before (None: no tables) and after.

    Tables of the application are never read or changed. Raises Refused SCHEMA_NEWER and InvalidEnvironment SCHEMA_DENIED.
    """
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        before = _version(connection)
        config = _config()
        _known(config, before)
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except DBAPIError as error:
            raise InvalidEnvironment(
                "SCHEMA_DENIED",
                f"the tables cannot be created ({str(error.orig).splitlines()[0]}).",
                expected=f"a database user that may create tables; no other tables named {PREFIX}….",
                remedy="run `ingest database migrate` once as the owner of the schema; services only read and write.",
            ) from error
        return before, _head(config)


def checked(url: str) -> Engine:
    """An engine for this URL, after `check`. Raises the errors of `connect` and of `check`."""
    engine = connect(url)
    check(engine)
    return engine


def check(engine: Engine) -> None:
    """Raise Refused if our tables are not those of this version: SCHEMA_MISSING, SCHEMA_NEWER or SCHEMA_CHANGED.

    Every relay, sink and effect worker calls it before it starts. It reads the catalog only.
    """
    config = _config()
    with engine.connect() as connection:
        version = _version(connection)
        _known(config, version)
        if version != _head(config):
            raise schema_missing(version, _head(config))
        if differences := _differences(connection):
            raise schema_changed(differences)


def version(engine: Engine) -> tuple[str | None, str]:
    """The version of our tables in the database (None: there are none), and the version of this package."""
    with engine.connect() as connection:
        return _version(connection), _head(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _head(config: Config) -> str:
    (head,) = ScriptDirectory.from_config(config).get_heads()
    return head


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _known(config: Config, version: str | None) -> None:
    scripts = ScriptDirectory.from_config(config)
    if version is not None and version not in {script.revision for script in scripts.walk_revisions()}:
        raise schema_newer(version, _head(config))


def _differences(connection: Connection) -> list[str]:
    ours = {*metadata.tables, VERSION_TABLE}
    context = MigrationContext.configure(
        connection,
        opts={
            "version_table": VERSION_TABLE,
            "compare_type": True,
            "include_name": lambda name, kind, parents: kind != "table" or name in ours,
        },
    )
    columns = inspect(connection)
    keys = [
        f"the primary key of {table.name} is not ({', '.join(wanted)})"
        for table in metadata.sorted_tables
        if columns.has_table(table.name)
        and columns.get_pk_constraint(table.name)["constrained_columns"] != (wanted := [column.name for column in table.primary_key])
    ]
    # Additions are the user's business: only what is missing or another type would break a statement of ours.
    return keys + [text for difference in compare_metadata(context, metadata) if (text := _text(difference)) is not None]


def _text(difference: object) -> str | None:
    if isinstance(difference, list):  # changes of one column come as a list
        return next((text for each in difference if (text := _text(each)) is not None), None)
    assert isinstance(difference, tuple)
    kind, *what = difference
    match kind:
        case "add_table":
            return f"the table {what[0].name} is missing"
        case "add_column":
            return f"{what[1]}.{what[2].name} is missing"
        case "modify_type":
            return f"{what[1]}.{what[2]} is {what[4]}, not {what[5]}"
        case "modify_nullable":
            return f"{what[1]}.{what[2]} {'may' if what[4] else 'may not'} be null"
        case "add_constraint" | "add_index":
            return f"{what[0].name} of {what[0].table.name} is missing"
        case _:
            return None
