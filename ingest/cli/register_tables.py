"""`ingest register`: make the tables of a lake known to a catalog by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.delta.catalog_entry import CatalogEntry
    from ingest.runtime.errors import IngestError


@o.verb(app, "checkpoints", "master")
def register(
    env: o.Environment,
    tables: o.Tables = None,
    catalog: Annotated[str, typer.Option("--catalog", help="The catalog: spark_catalog is Spark's own, such as a Hive metastore.")] = (
        "spark_catalog"
    ),
    schema: Annotated[str, typer.Option("--schema", help="The schema, which must exist.")] = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL statements, to run elsewhere. Starts no Spark.")] = False,
    as_json: o.Json = False,
) -> int:
    """Make tables known to a catalog by name, as external tables. TABLE, TABLE__quarantine, TABLE__ledger, TABLE__quality.

    Example: ingest register --catalog main --schema shop --lake abfss://lake@account.dfs.core.windows.net/oncelake
    """
    from ingest.delta.catalog_entry import entries, exists, record
    from ingest.runtime.errors import IngestError
    from ingest.runtime.files import is_local

    wanted = entries([env.places(each) for each in env.contracts(tables)], catalog, schema)
    if dry_run:
        wanted = [each for each in wanted if not is_local(env.lake) or exists(None, each)]
        if not (as_json or is_local(env.lake)):
            out_line("-- The lake is not on this machine: run only the statements whose table exists.")
        if as_json:
            print_json("register", ok=True, tables=[_row(each) for each in wanted])
        for each in () if as_json else wanted:
            out_line(f"{each.statement};")
        return 0
    done: list[CatalogEntry] = []
    errors: dict[str, IngestError] = {}
    with env.session("register", short=True) as session:
        for each in wanted:
            try:
                if record(session, each):
                    done.append(each)
            except IngestError as error:
                errors[each.name] = error
    return print_verdict(
        "register", done, errors, as_json=as_json, as_row=_row, show=lambda each: out_line(f"{each.name} is {each.location}")
    )


def _row(entry: CatalogEntry) -> dict[str, Any]:
    return {"table": entry.name, "ok": True, "location": entry.location, "statement": entry.statement}
