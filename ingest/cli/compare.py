"""`ingest compare`: the difference of two Delta tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.contract.definition import Contract
    from ingest.delta.delta_sql import At, Engine
    from ingest.verify.compare.compared_columns import Columns
    from ingest.verify.compare.table_difference import Comparison

Here = Annotated[str, typer.Argument(metavar="A", help="A table: its folder, or its name in the project. A@3 is its version 3.")]
There = Annotated[str, typer.Argument(metavar="B", help="The table to compare with.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="COLUMNS", help="Columns that identify a row (default: the contract's event id).")
]
Chosen = Annotated[str | None, typer.Option("--columns", metavar="COLUMNS", help="Compare only these (default: all without a leading _).")]
Ignore = Annotated[str | None, typer.Option("--ignore", metavar="COLUMNS", help="Leave these out, too.")]


@o.verb(app, "master")
def compare(
    env: o.Environment,
    here: Here,
    there: There,
    key: Key = None,
    columns: Chosen = None,
    ignore: Ignore = None,
    as_json: o.Json = False,
) -> None:
    """Compare two Delta tables: rows only here, only there, and differing ones. Exit 1: they differ.

    Example: ingest compare orders lake/rebuild-shadow/shop/orders/target --ignore updated_at
    """
    from ingest.cli.audit import with_engine
    from ingest.contract.columns import event_id_columns
    from ingest.runtime.files import is_local
    from ingest.verify.compare.compared_columns import choose
    from ingest.verify.compare.table_difference import compare as run

    contracts = env.contracts() if (env.project / "tables").is_dir() else ()
    (first, of_first), (second, of_second) = (_table(text, contracts, env) for text in (here, there))
    contract = of_first or of_second
    names = _words(key) or (event_id_columns(contract) if contract else ())

    def done(engine: Engine) -> tuple[At, At, Columns, Comparison]:
        (one, schema), (other, schema_there) = (_opened(engine, at) for at in (first, second))
        chosen = choose(schema, schema_there, names, _words(columns) or None, _words(ignore))
        return one, other, chosen, run(engine, one, other, chosen)

    remote = next((at.path for at in (first, second) if not is_local(at.path)), first.path)
    one, other, chosen, found = with_engine(remote, done, env.master)
    ok = found.same and chosen.same
    if as_json:
        about = asdict(chosen) | {"types": {name: str(kind) for name, kind in chosen.types.items()}, "key": chosen.key if names else None}
        row = {"table": one.path, "version": one.version, "with": other.path, "with_version": other.version, "ok": ok}
        print_json("compare", ok=ok, tables=[{**row, "columns": about, **asdict(found)}])
    else:
        _print(one, other, chosen, found, has_key=bool(names))
    if not ok:
        raise typer.Exit(1)


def _table(text: str, contracts: tuple[Contract, ...], env: o.Environment) -> tuple[At, Contract | None]:
    """The table that an argument names, and its contract if it is the target of one. Raises the errors of Catalog.find."""
    from ingest.delta.delta_sql import At
    from ingest.runtime.files import LocalFiles, is_local, local_path
    from ingest.runtime.places import of_tables
    from ingest.sql.catalog import catalog

    name, _, digits = text.rpartition("@")
    name, version = (name, int(digits)) if name and digits.isascii() and digits.isdigit() else (text, None)
    targets = {env.places(contract).target: contract for contract in contracts}
    if not is_local(name) or (local_path(name) / "_delta_log").is_dir() or "/" in name or not contracts or not is_local(env.lake):
        path = of_tables(name)
        return At(path, version), targets.get(path)
    path = catalog(contracts, env.lake, LocalFiles()).find(name).path
    return At(path, version), targets.get(path)


def _opened(engine: Engine, at: At) -> tuple[At, pa.Schema]:
    """The table at a fixed version, and its schema. Raises InvalidInput TABLE_MISSING, and Unreadable for a version that is gone."""
    from ingest.delta.delta_sql import At, schema
    from ingest.verify.audit.audited_table import AuditedTable

    fixed = At(at.path, AuditedTable.open(engine, at.path).at.version if at.version is None else at.version)
    return fixed, schema(engine, fixed)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _print(one: At, other: At, columns: Columns, found: Comparison, *, has_key: bool) -> None:
    verdict = "THE SAME" if found.same and columns.same else "DIFFERENT"
    out_line(f"{verdict}: A = {one.path} version {one.version}, B = {other.path} version {other.version}")
    out_line(f"  {'key':<14}{', '.join(columns.key) if has_key else 'none: whole rows are compared (--key names one)'}")
    if columns.ignored:
        out_line(f"  {'ignored':<14}{', '.join(columns.ignored)}")
    for name, only in zip(("only in A", "only in B"), columns.only, strict=True):
        if only:
            out_line(f"  ! columns {name}: {', '.join(only)}")
    for name, (here, there) in columns.unlike.items():
        out_line(f"  ! column {name} is {here} in A and {there} in B: not compared")
    out_line(f"  {'rows':<14}A {found.rows[0]:,}, B {found.rows[1]:,}")
    lines: list[tuple[str, int, str]] = [("only in A", found.only[0], "only_here"), ("only in B", found.only[1], "only_there")]
    if has_key:
        lines += [("differing", found.differing, "differing")]
        repeated = zip(("repeated in A", "repeated in B"), found.repeated, ("repeated_here", "repeated_there"), strict=True)
        lines += [line for line in repeated if line[1]]
    for name, number, kind in lines:
        out_line(f"  {name:<14}{number:>12,}{' keys' if 'repeated' in name else ''}")
        if kind == "differing" and found.differs:
            of = f" (in the first {found.examined:,})" if found.examined < number else ""
            out_line(f"  {'':<14}{'':>12} by column{of}: {', '.join(f'{column} {count:,}' for column, count in found.differs.items())}")
        for example in found.examples[kind] if number else ():
            out_line(f"  ! {name}: {_example(example)}")


def _example(example: dict[str, Any]) -> str:
    """`order_id=7: amount 1.50 → 1.60`, `order_id=7 (2 rows)`."""
    from ingest.runtime.printable import printable

    def text(value: Any) -> str:
        return "NULL" if value is None else printable(str(value), 60)

    key = ", ".join(f"{name}={text(value)}" for name, value in example["key"].items())
    if "values" in example:
        changes = ", ".join(f"{name} {text(pair['here'])} → {text(pair['there'])}" for name, pair in example["values"].items())
        return f"{key}: {changes}"
    return key if example["rows"] == 1 else f"{key} ({example['rows']} rows)"
