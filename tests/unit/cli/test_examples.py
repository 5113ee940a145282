"""Every verb's --help ends with an example that the command line accepts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.project.test_pages import command_of, commands

pytestmark = pytest.mark.unit


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that does something itself, groups left out."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words
    for name, each in (inner or {}).items():
        yield from verbs(each, (*words, name))


@pytest.mark.parametrize("words", list(verbs(commands())), ids=" ".join)
def test_the_help_of_every_verb_ends_with_an_example_that_parses(words: tuple[str, ...]) -> None:
    command, _ = command_of(list(words))
    start, example, line = (command.help or "").rpartition("\n\nExample")
    assert example, "no example"
    assert "Example" not in start, "one example is enough"
    typed = shlex.split(line.partition(": ")[2])
    assert typed[: 1 + len(words)] == ["ingest", *words]
    command.make_context("ingest", typed[1 + len(words) :])  # raises a usage error for an unknown option or a missing argument
