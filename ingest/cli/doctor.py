"""`ingest doctor` and `ingest jars`: check this machine, and download the Java libraries. Only the download needs the internet."""

from __future__ import annotations

from typing import Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json
from ingest.runtime.output import err_line, out_line

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing if no jar is missing.")]


@o.verb(app, "checkpoints", "bootstrap_servers", "master")
def doctor(
    env: o.Environment,
    with_spark: Annotated[bool, typer.Option("--spark", help="Also start Spark and check that it fences an earlier writer.")] = False,
    as_json: o.Json = False,
) -> None:
    """Check Python, Java, jars, disk, folders, contracts and the broker. Exit 4: the environment needs a
    change; exit 2: a contract is wrong.

    Example: ingest doctor --bootstrap-servers broker1:9092
    """
    from ingest.run.environment import examine, exit_code

    findings = examine(env.project, env.lake, env.checkpoints, env.bootstrap_servers, env.master if with_spark else None)
    code = exit_code(findings)
    if as_json:
        checks = [{**vars(one), "ok": one.error is None, "error": one.error and one.error.as_dict()} for one in findings]
        worst = next((one.error for one in findings if code and one.exit_code == code), None)
        print_json("doctor", ok=code == 0, error=worst, checks=checks)
    else:
        for one in findings:
            label = "ok" if one.error is None else "FAIL" if one.needed else "note"
            out_line(f"{label:5} {one.check:14} {one.detail}" + (f" To mend: {one.error.remedy}" if one.error else ""))
    raise typer.Exit(code)


@app.command()
def jars(quiet: Quiet = False, as_json: o.Json = False) -> None:
    """Download the pinned Java libraries, or check their SHA-256 sums.

    Example: ingest jars --quiet
    """
    from ingest.runtime.jars import JarSet, cache_folder, discard_damaged, ensure

    discarded = [file.name for jar_set in JarSet for file in discard_damaged(jar_set)]
    for file in discarded:
        err_line(f"{file} did not match its pinned SHA-256 sum and was deleted")
    count = sum(len(ensure(jar_set, say=err_line)) for jar_set in JarSet)
    if as_json:
        print_json("jars", ok=True, jars=count, folder=str(cache_folder() / "jars"))
    elif not quiet:
        out_line(f"{count} jars in {cache_folder() / 'jars'}, all SHA-256 sums match")
