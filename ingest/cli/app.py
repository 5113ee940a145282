"""The typer application, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import itertools
import json
import os
import select
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer

from ingest.cli.progress import unread
from ingest.runtime.errors import Bug, IngestError, InvalidEnvironment, InvalidInput

if TYPE_CHECKING:
    from ingest.kafka.broker_answers import BrokerAnswers

T = TypeVar("T")
JSON = "--json"
# As a shell says of a command that SIGPIPE has ended: `ingest log … | head`. Verbs with a verdict end with that.
UNREAD = 141
# What typer raises for a wrong option, argument or verb; it exports only this descendant.
USAGE_ERROR: Any = typer.BadParameter.__base__

# The extra `local` installs them; a platform with a Spark of its own brings them.
SPARK_PACKAGES = ("pyspark", "delta", "py4j")

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


def print_verdict(
    verb: str,
    found: Sequence[T],
    errors: Mapping[str, IngestError],
    *,
    ok: bool,
    as_json: bool,
    as_row: Callable[[T], dict[str, Any]],
    show: Callable[[T], None],
) -> None:
    """Print what a verb has found, a table each, and the errors of those that did not come to their end, by their names.

    With a reader that is gone nothing is raised: the verdict is in the exit code as well.
    """
    with unread(sys.stdout):
        if as_json:
            ended = [{"table": name, "ok": False, "error": error.as_dict()} for name, error in errors.items()]
            print_json(verb, ok=ok, tables=[*map(as_row, found), *ended], error=next(iter(errors.values()), None))
        for each in () if as_json else found:
            show(each)
    for failed in () if as_json else errors.values():
        print_error(failed)


def print_error(error: IngestError) -> None:
    """Say on stderr what was found, what was expected and what mends it."""
    with unread(sys.stderr):  # `2>&1 | head` takes no exit code either
        print(f"ingest: {error.code}: {error.found}", file=sys.stderr)
        print(f"  expected: {error.expected}", file=sys.stderr)
        print(f"  to mend:  {error.remedy}", file=sys.stderr)


def main() -> None:
    """Entry point of the console script; exit codes as in docs/reference/guarantees.md."""
    from ingest.cli import register

    register()
    words = sys.argv[1:]
    # A caller that has closed them (`>&-`) reads nothing; Python has no streams then.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        # Not standalone: the application would end the process with messages and codes of its own.
        with _beside(words) as broker:
            code = app(standalone_mode=False, obj=broker)
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
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in SPARK_PACKAGES:
            _end(words, _spark_missing(error))
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(UNREAD)
        from ingest.runtime.files import environment_error

        if (refused := environment_error(error)) is not None:
            _end(words, refused)
        traceback.print_exc()
        _end(words, Bug("UNEXPECTED", f"{type(error).__name__}: {error}", expected="no error that has no name."))
    else:
        # Databricks calls this function in an interpreter of its own, where SystemExit is an exception whatever its code.
        if isinstance(code, int) and code != 0:
            sys.exit(code)


def _beside(words: list[str]) -> AbstractContextManager[BrokerAnswers | None]:
    """What `ingest status` asks the broker with takes as long to load as all else: it begins before typer has looked at the options."""
    if words[:1] != ["status"]:
        return nullcontext()
    from ingest.kafka.broker_answers import BrokerAnswers

    return BrokerAnswers()


def _nobody_reads() -> bool:
    asked = select.poll()
    asked.register(sys.stdout, 0)
    gone = any(event & select.POLLERR for _, event in asked.poll(0))
    with unread(sys.stdout):  # Python would complain of what is left to flush when it ends
        pass
    return gone


def _end(words: list[str], error: IngestError) -> NoReturn:
    if JSON in words:
        with unread(sys.stdout):
            print_json(_verb(words), ok=False, error=error)
    else:
        print_error(error)
    sys.exit(error.exit_code)


def _spark_missing(error: ModuleNotFoundError) -> InvalidEnvironment:
    return InvalidEnvironment(
        "SPARK_MISSING",
        f"the Python package {error.name} is not installed.",
        expected="pyspark and delta-spark, from the platform (Databricks) or installed beside this command.",
        remedy="pip install 'oncelake[local]', or run make setup in a checkout.",
    )


def _verb(words: list[str]) -> str:
    """`run`, `broker-start`: the words before the first option, two for a group of verbs."""
    named = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    groups = {group.typer_instance.info.name for group in app.registered_groups if group.typer_instance}
    return "-".join(named[: 2 if named[:1] and named[0] in groups else 1]) or "ingest"
