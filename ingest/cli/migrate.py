"""`ingest database`: create and update our tables in the application's database."""

from __future__ import annotations

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

database = typer.Typer(name="database", help="Create and check the tables of outbox, sink and effects.", no_args_is_help=True)
app.add_typer(database)


@o.verb(database, "database_url")
def migrate(env: o.Environment, as_json: o.Json = False) -> None:
    """Create the tables, or update those of an earlier version, in one transaction. The application's tables stay unchanged.

    Example: ingest database migrate --database-url postgresql://app@db1:5432/shop
    """
    from ingest.delivery.database import schema
    from ingest.delivery.database.database import connect

    before, after = schema.migrate(connect(env.database_url))
    if as_json:
        print_json("database-migrate", ok=True, before=before, after=after)
    elif before == after:
        out_line(f"nothing to do: the tables have version {after}")
    else:
        out_line(f"the tables have version {after} now ({'there were none' if before is None else f'before: {before}'})")


@o.verb(database, "database_url")
def status(env: o.Environment, as_json: o.Json = False) -> None:
    """Check that the tables are complete and unchanged. Exit 3: they are not, and the error says why.

    Example: ingest database status --json
    """
    from ingest.delivery.database import schema

    version, _ = schema.version(schema.checked(env.database_url))
    if as_json:
        print_json("database-status", ok=True, version=version)
    else:
        out_line(f"the tables have version {version}, as this package expects")
