"""`ingest semantics`: measure on this machine what each delivery mode costs and what it guarantees."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

Seed = Annotated[int, typer.Option("--seed", help="Chooses where faults are injected, the same for all modes.")]
Records = Annotated[int | None, typer.Option("--records", min=1, help="Records per fault trial (default: 2,000; with --quick 300).")]
Group = Annotated[int | None, typer.Option("--group", min=1, help="Records per group in a fault trial (default: 100; with --quick 20).")]
Quick = Annotated[bool, typer.Option("--quick", help="Few records and short measurements. Do not quote these figures.")]
Faults = Annotated[list[str] | None, typer.Option("--fault", metavar="NAME", help="Inject only this fault. Can be given several times.")]
Html = Annotated[Path | None, typer.Option("--html", dir_okay=False, help="Write tables and charts to this file, which needs no network.")]
Png = Annotated[Path | None, typer.Option("--png", dir_okay=False, help="Write the charts to this file.")]


@app.command()
def semantics(
    seed: Seed = 1,
    records: Records = None,
    group: Group = None,
    quick: Quick = False,
    fault: Faults = None,
    html: Html = None,
    png: Png = None,
    as_json: o.Json = False,
) -> None:
    """Compare delivery modes under the same faults and load. It uses an embedded broker. Exit 1: a mode broke
    its promise.

    Example: ingest semantics --quick --html semantics.html
    """
    from ingest.lab.delivery_modes import comparison as trials
    from ingest.lab.delivery_modes.mode_table import tables

    faults = trials.chosen(fault or [])
    if (html or png) and find_spec("vl_convert") is None:  # before minutes of work
        raise ModuleNotFoundError("the charts are drawn by vl_convert", name="vl_convert")
    size = (trials.QUICK if quick else trials.FULL).of(records, group)
    for path in (html, png):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()  # fails now if the file cannot be written, not after minutes of work
    result = trials.run(size, seed=seed, faults=faults, say=err_line)
    if html is not None:
        from ingest.lab.delivery_modes.mode_page import page

        html.write_text(page(result), encoding="utf-8")
    if png is not None:
        from ingest.lab.delivery_modes.chart import picture

        picture(result).save(png, format="png", scale_factor=2)
    if as_json:
        print_json("semantics", ok=not result.broken, **result.as_dict())
    else:
        out_line(*"\n\n".join(table.text() for table in tables(result)).split("\n"))
    if result.broken:
        raise typer.Exit(1)
