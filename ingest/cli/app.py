"""The typer application. Only this module turns errors into messages and exit codes."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import select
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from typing import Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from ingest.cli import VERBS
from ingest.cli.progress import unread
from ingest.runtime import extras
from ingest.runtime.errors import Bug, IngestError, InvalidEnvironment, InvalidInput, most_severe
from ingest.runtime.output import LogLine, data_stream, err_line, guarded
from ingest.runtime.printable import printable

T = TypeVar("T")
JSON = "--json"
# What a shell reports for a command that SIGPIPE killed (`ingest log … | head`). A verb with a verdict keeps its own exit code.
UNREAD = 141
# Typer raises this class for a wrong option, argument or verb, but exports only its subclass BadParameter.
USAGE_ERROR: Any = typer.BadParameter.__base__

# Help fits a terminal of 100 columns.
WIDTH = 100


class Verbs(TyperGroup):
    """Prints the verbs by group, each with the first sentence of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group, names in VERBS.items():
            rows = [(name, (self.commands[name].help or "").partition("\n\n")[0].replace("\n", " ")) for name in names]
            with formatter.section(group):
                formatter.write_dl([(name, help.partition(". ")[0].removesuffix(".") + ".") for name, help in rows], col_max=14)


app = typer.Typer(
    name="ingest",
    cls=Verbs,
    help="Move events from Kafka into Delta Lake exactly once, and prove it.",
    no_args_is_help=True,
    context_settings={"max_content_width": WIDTH},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_json(verb: str, *, ok: bool, tables: list[dict[str, Any]] | None = None, error: IngestError | None = None, **more: Any) -> None:
    """Print the JSON document that `--json` promises: `{"schema", "ok", "tables", "error"}` and the keys of `more`."""
    data_stream().write(json.dumps(document(verb, ok=ok, tables=tables, error=error, **more), indent=2, default=str) + "\n")


def document(
    verb: str, *, ok: bool, tables: list[dict[str, Any]] | None = None, error: IngestError | None = None, **more: Any
) -> dict[str, Any]:
    """The JSON document of a verb."""
    return {"schema": f"oncelake/{verb}/1", "ok": ok, "tables": tables or [], "error": error.as_dict() if error else None, **more}


def print_verdict(
    verb: str,
    found: Sequence[T],
    errors: Mapping[str, IngestError],
    *,
    as_json: bool,
    as_row: Callable[[T], dict[str, Any]],
    show: Callable[[T], None],
    code: int = 0,
) -> int:
    """Print a verb's result for each table, and the errors of the tables that failed, keyed by table name.

    Returns the exit code: the most severe one of the errors and of `code`, the verdict on the tables without an error. Raises nothing if
    nobody reads the output any more, because the exit code carries the verdict too.
    """
    ok = not errors and not code
    with unread(sys.stdout):
        if as_json:
            failures = [{"table": name, "ok": False, "error": error.as_dict()} for name, error in errors.items()]
            print_json(verb, ok=ok, tables=[*map(as_row, found), *failures], error=next(iter(errors.values()), None))
        for each in () if as_json else found:
            show(each)
    for failed in () if as_json else errors.values():
        print_error(failed)
    return most_severe([*(error.exit_code for error in errors.values()), code])


def print_error(error: IngestError) -> None:
    """Print on stderr what was found, what was expected and how to mend it. In a log each is one line, so that a search finds it."""
    lines = []
    for head, (first, *more) in zip((f"ingest: {error.code}: ", "  expected: ", "  to mend:  "), error.lines, strict=True):
        lines += [head + first, *more]
    with unread(sys.stderr):  # with `2>&1 | head` the exit code stays the error's
        err_line(*(itertools.chain.from_iterable(map(_wrapped, lines)) if sys.stderr.isatty() else lines))


def _wrapped(line: str) -> list[str]:
    """Wrap a line at WIDTH, or at the terminal's width if that is less. A command in backticks is not broken, so it can be copied."""
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns)
    commands = re.sub("`[^`]*`", lambda command: command.group().replace(" ", "\0"), printable(line))
    wrapped = textwrap.wrap(commands, width=width, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\0", " ") for part in wrapped]


def main() -> None:
    """Entry point of the console script. docs/reference/guarantees.md lists the exit codes."""
    from ingest.cli import register

    register()
    words = sys.argv[1:]
    # Python sets a stream to None if the caller has closed it (`>&-`).
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    # What else arrives on stderr, such as the warnings of libraries, quotes others too.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogLine())
    with redirect_stderr(guarded(sys.stderr)):
        _run(words)


def _run(words: list[str]) -> None:
    try:
        # In standalone mode typer would end the process with its own messages and exit codes.
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except IngestError as error:
        _end(words, error)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if isinstance(error, USAGE_ERROR):
            if JSON not in words:
                error.show()
                sys.exit(2)
            found = error.format_message() or "no verb."
            _end(words, InvalidInput("USAGE", found, expected="the options that --help shows.", remedy="correct the command."))
        package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if (absent := extras.missing(package, lab=words[:1] != [] and words[0] in VERBS["Lab"])) is not None:
            _end(words, absent)
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(UNREAD)
        if (failed := _statement_failed(error)) is not None:
            _end(words, failed)
        from ingest.runtime.files import environment_error

        if (refused := environment_error(error)) is not None:
            _end(words, refused)
        # Indented, so that no line of a message looks like one of ours.
        err_line(*(f"  {line}" for line in "".join(traceback.format_exception(error)).rstrip().split("\n")))
        said = next(iter(str(error).strip().splitlines()), "")
        _end(words, Bug("UNEXPECTED", f"{type(error).__name__}: {said}", expected="only errors that have a code."))
    else:
        # Databricks calls this function in its own interpreter, which reports every SystemExit as a failure, even SystemExit(0).
        if isinstance(code, int) and code != 0:
            sys.exit(code)


def _nobody_reads() -> bool:
    poll = select.poll()
    poll.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    with unread(sys.stdout):  # flush now: otherwise Python reports the broken pipe once more at exit
        pass
    return gone


def _end(words: list[str], error: IngestError) -> NoReturn:
    if JSON in words:
        with unread(sys.stdout):
            print_json(_verb(words), ok=False, error=error)
    else:
        print_error(error)
    sys.exit(error.exit_code)


def _statement_failed(error: Exception) -> InvalidEnvironment | None:
    """The error of a failed SQL statement; None for any other. Only a verb of `delivery` has loaded the module that knows."""
    known: Any = sys.modules.get("ingest.delivery.database.database_errors")
    return known.statement_failed(error) if known is not None and isinstance(error, known.DBAPIError) else None


def _verb(words: list[str]) -> str:
    """The verb as the JSON schema names it, such as `run` or `broker-start`: one word before the first option, two for a group of verbs."""
    named = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    groups = {group.typer_instance.info.name for group in app.registered_groups if group.typer_instance}
    return "-".join(named[: 2 if named[:1] and named[0] in groups else 1]) or "ingest"
