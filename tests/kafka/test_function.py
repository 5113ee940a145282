"""A faulty transform function is distinguished from a poison record, so that it puts no record into the dead-letter topic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.delivery.kafka import DeadLetter, ExactlyOnce, Outgoing, Transform
from ingest.delivery.kafka.function import called, check_arguments, checked
from ingest.runtime.errors import InvalidInput
from tests.kafka.topics import Topics

Unchecked: Any = Outgoing  # as code that is not checked by mypy creates them
RECORD: Any = SimpleNamespace(topic="orders", partition=1, offset=7)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (lambda record: None, "NoneType"),
        (lambda record: Outgoing("a", b"b"), "Outgoing"),
        (lambda record: b"bytes", "bytes"),
        (lambda record: [Outgoing("a", b"b"), {"topic": "a"}], "dict within a list"),
        (lambda record: {"topic": "a"}, "str within a list"),
    ],
)
def test_a_result_that_is_not_outgoing_is_refused_with_its_type_and_record(function: Any, returned: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf"FUNCTION_UNFIT.*returned {returned} for the record at orders\[1\]@7.*yield Outgoing"
    ) as environment_error:
        checked(called(function, RECORD), RECORD)
    assert environment_error.value.exit_code == 2


@pytest.mark.unit
def test_lists_tuples_and_generators_of_outgoing_are_accepted() -> None:
    one = Outgoing("a", b"b")
    for function in (lambda record: [one], lambda record: (one,), lambda record: (each for each in [one])):
        assert checked(called(function, RECORD), RECORD) == [one]
    assert checked(called(lambda record, state: [], RECORD, {}), RECORD) == []


@pytest.mark.unit
def test_the_functions_arguments_are_checked_before_the_first_record() -> None:
    def either(record: Any, state: Any = None) -> list[Outgoing]:
        return []

    wrong: Any
    for stateful in (False, True):
        check_arguments(either, stateful=stateful)
        check_arguments(operator.itemgetter(0) if not stateful else max, stateful=stateful)  # written in C: no signature
    for wrong, stateful, message in (
        (lambda record, state: [], False, "a record alone"),
        (lambda record: [], True, "a record and its state"),
    ):
        with pytest.raises(InvalidInput, match=rf"FUNCTION_UNFIT.*{message}"):
            Transform("t", wrong, "t", ExactlyOnce("x"), "g", "127.0.0.1:1", changelog="c" if stateful else None)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda sink: None, "returned NoneType for the record"),
        (lambda sink: [Unchecked(sink, "text")], "Unsupported type for serialized value.*json.dumps"),
        (lambda sink: [Unchecked(sink, b"1", headers=[("a", "b")])], r"headers items must be \(str, bytes\)"),
    ],
)
def test_a_bug_in_the_function_turns_no_record_into_a_dead_letter(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str], returned: Callable[[str], Any], message: str
) -> None:
    source, sink, letters = full(5), topic(), topic()
    mode, dead = ExactlyOnce(f"t-{source}"), DeadLetter(letters)
    refused = pytest.raises(InvalidInput, match=rf"FUNCTION_UNFIT.*{message}")
    with refused, Transform(source, lambda record: returned(sink), sink, mode, source, topics.servers, dead_letter=dead) as instance:
        instance.run(idle_s=10)
    assert topics.values(letters) == topics.values(sink) == [] and topics.committed(source, source) == {0: 0}
