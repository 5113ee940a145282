"""The typer application, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from ingest.errors import IngestError

app = typer.Typer(
    name="ingest",
    help="Kafka into Delta Lake exactly once, with proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_json(verb: str, *, ok: bool, tables: list[dict[str, Any]] | None = None, error: IngestError | None = None, **more: Any) -> None:
    """Print the one document that `--json` promises: `{"schema", "ok", "tables", "error"}`."""
    document = {"schema": f"oncelake/{verb}/1", "ok": ok, "tables": tables or [], "error": error.as_dict() if error else None, **more}
    print(json.dumps(document, indent=2, default=str))


def print_error(error: IngestError) -> None:
    """Say on stderr what was found, what was expected and what mends it."""
    print(f"ingest: {error.code}: {error.found}", file=sys.stderr)
    print(f"  expected: {error.expected}", file=sys.stderr)
    print(f"  to mend:  {error.remedy}", file=sys.stderr)


def main() -> None:
    """Entry point of the console script; exit codes as in docs/contract.md."""
    from ingest.cli import register

    register()
    json_wanted = "--json" in sys.argv
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "ingest")
    try:
        app()
    except IngestError as error:
        if json_wanted:
            print_json(verb, ok=False, error=error)
        else:
            print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
