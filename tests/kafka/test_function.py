"""A transform's function that was written wrong: told from a record that is poison, so that no record is put away for it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.kafka.delivery import DeadLetter, ExactlyOnce, Outgoing, Transform
from ingest.kafka.delivery.function import called, check_arguments, checked
from ingest.runtime.errors import InvalidInput
from tests.kafka.topics import Topics

Unchecked: Any = Outgoing  # as a service without mypy makes them
RECORD: Any = SimpleNamespace(topic="orders", partition=1, offset=7)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("function", "made"),
    [
        (lambda record: None, "NoneType"),
        (lambda record: Outgoing("a", b"b"), "Outgoing"),
        (lambda record: b"bytes", "bytes"),
        (lambda record: [Outgoing("a", b"b"), {"topic": "a"}], "dict within a list"),
        (lambda record: {"topic": "a"}, "str within a list"),
    ],
)
def test_what_is_no_outgoing_is_named_with_its_record(function: Any, made: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf"FUNCTION_UNFIT.*returned {made} for the record at orders\[1\]@7.*yield Outgoing"
    ) as environment_error:
        checked(called(function, RECORD), RECORD)
    assert environment_error.value.exit_code == 2


@pytest.mark.unit
def test_lists_tuples_and_generators_of_outgoing_are_taken() -> None:
    one = Outgoing("a", b"b")
    for function in (lambda record: [one], lambda record: (one,), lambda record: (each for each in [one])):
        assert checked(called(function, RECORD), RECORD) == [one]
    assert checked(called(lambda record, state: [], RECORD, {}), RECORD) == []


@pytest.mark.unit
def test_the_arguments_are_looked_at_before_the_first_record() -> None:
    def either(record: Any, state: Any = None) -> list[Outgoing]:
        return []

    wrong: Any
    for stateful in (False, True):
        check_arguments(either, stateful=stateful)
        check_arguments(operator.itemgetter(0) if not stateful else max, stateful=stateful)  # of C: nothing tells
    for wrong, stateful, said in ((lambda record, state: [], False, "a record alone"), (lambda record: [], True, "a record and its state")):
        with pytest.raises(InvalidInput, match=rf"FUNCTION_UNFIT.*{said}"):
            Transform("t", wrong, "t", ExactlyOnce("x"), "g", "127.0.0.1:1", changelog="c" if stateful else None)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda sink: None, "returned NoneType for the record"),
        (lambda sink: [Unchecked(sink, "text")], "Unsupported type for serialized value.*json.dumps"),
        (lambda sink: [Unchecked(sink, b"1", headers=[("a", "b")])], r"headers items must be \(str, bytes\)"),
    ],
)
def test_no_record_becomes_a_dead_letter_for_a_mistake_of_the_function(
    topics: Topics, full: Callable[..., str], topic: Callable[..., str], made: Callable[[str], Any], said: str
) -> None:
    source, sink, letters = full(5), topic(), topic()
    mode, dead = ExactlyOnce(f"t-{source}"), DeadLetter(letters)
    refused = pytest.raises(InvalidInput, match=rf"FUNCTION_UNFIT.*{said}")
    with refused, Transform(source, lambda record: made(sink), sink, mode, source, topics.servers, dead_letter=dead) as instance:
        instance.run(idle_s=10)
    assert topics.values(letters) == topics.values(sink) == [] and topics.committed(source, source) == {0: 0}
