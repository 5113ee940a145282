"""Calls a transform's function, and distinguishes a bug in the function from a record that it cannot process.

A bug would fail every record, so it sends none of them to the dead-letter topic.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ingest.delivery.kafka.outgoing import Outgoing
from ingest.delivery.kafka.state import State
from ingest.runtime.errors import InvalidInput

Function: TypeAlias = Callable[[Any], Iterable[Outgoing]] | Callable[[Any, State], Iterable[Outgoing]]


def check_arguments(function: Function, *, stateful: bool) -> None:
    """Raise InvalidInput FUNCTION_UNFIT if the function cannot be called with a record or, if `stateful`, with a record and its state."""
    given = ("record", "state") if stateful else ("record",)
    try:
        inspect.signature(function).bind(*given)
    except TypeError as error:
        what = "with a changelog it gets a record and its state" if stateful else "without a changelog it gets a record alone"
        raise _unfit(f"cannot be called ({error})", f"{what}.", "change its arguments, or add or remove the changelog") from error
    except ValueError:  # a function written in C, without a signature
        return


def called(function: Any, *given: Any) -> object:
    """Call the function and return its result, an iterable as a list. Raises the function's exceptions."""
    made = function(*given)
    return list(made) if isinstance(made, Iterable) and not isinstance(made, str | bytes) else made


def checked(made: object, record: Any) -> list[Outgoing]:
    """Return the function's result; raise InvalidInput FUNCTION_UNFIT if it is not a list of Outgoing."""
    if isinstance(made, list) and all(isinstance(one, Outgoing) for one in made):
        return made
    wrong = next((one for one in made if not isinstance(one, Outgoing)), None) if isinstance(made, list) else made
    made_of = f"for the record at {record.topic}[{record.partition}]@{record.offset}"
    found = f"returned {type(wrong).__name__}{' within a list' if isinstance(made, list) else ''} {made_of}"
    raise _unfit(found, "an iterable of Outgoing, empty if there is nothing to send.", "yield Outgoing(…), or return a list of them")


def unsendable(one: Outgoing, error: TypeError) -> InvalidInput:
    """The error for values, keys or headers of a type that kafka-python does not accept."""
    expected = "keys and values of bytes (or None), headers of (str, bytes)."
    return _unfit(f"returned wrong types for {one.topic} ({error})", expected, "encode them, as with .encode() or json.dumps(…).encode()")


def _unfit(found: str, expected: str, remedy: str) -> InvalidInput:
    return InvalidInput("FUNCTION_UNFIT", f"the function {found}.", expected=expected, remedy=f"{remedy}.")
