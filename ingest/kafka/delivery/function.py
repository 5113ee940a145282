"""A transform's function, called so that a mistake in how it was written is told from a record that it cannot work on.

The record is no poison then, and so would all others be: none of them goes to the dead-letter topic.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ingest.kafka.delivery.outgoing import Outgoing
from ingest.kafka.delivery.state import State
from ingest.runtime.errors import InvalidInput

Function: TypeAlias = Callable[[Any], Iterable[Outgoing]] | Callable[[Any, State], Iterable[Outgoing]]


def check_arguments(function: Function, *, stateful: bool) -> None:
    """Raises InvalidInput FUNCTION_UNFIT where it cannot be called with a record, or with a record and its state."""
    given = ("record", "state") if stateful else ("record",)
    try:
        inspect.signature(function).bind(*given)
    except TypeError as error:
        what = "with a changelog it is given a record and its state" if stateful else "without a changelog it is given a record alone"
        raise _unfit(f"cannot be called so ({error})", f"{what}.", "give it these arguments, or the transform what is missing") from error
    except ValueError:  # of C, without a signature
        return


def called(function: Any, *given: Any) -> object:
    """What it made, an iterable as a list. Raises what the function raises."""
    made = function(*given)
    return list(made) if isinstance(made, Iterable) and not isinstance(made, str | bytes) else made


def checked(made: object, record: Any) -> list[Outgoing]:
    """Raises InvalidInput FUNCTION_UNFIT where it is no list of Outgoing."""
    if isinstance(made, list) and all(isinstance(one, Outgoing) for one in made):
        return made
    wrong = next((one for one in made if not isinstance(one, Outgoing)), None) if isinstance(made, list) else made
    made_of = f"of the record at {record.topic}[{record.partition}]@{record.offset}"
    found = f"made {type(wrong).__name__}{' within a list' if isinstance(made, list) else ''} {made_of}"
    raise _unfit(found, "an iterable of Outgoing, empty where there is nothing to send.", "yield Outgoing(…), or return a list of them")


def unsendable(one: Outgoing, error: TypeError) -> InvalidInput:
    """For values, keys or headers of another type than Kafka's."""
    expected = "keys and values of bytes (or None), headers of (str, bytes)."
    return _unfit(f"made for {one.topic} what is not bytes ({error})", expected, "encode them, as with .encode() or json.dumps(…).encode()")


def _unfit(found: str, expected: str, remedy: str) -> InvalidInput:
    return InvalidInput("FUNCTION_UNFIT", f"the function {found}.", expected=expected, remedy=f"{remedy}.")
