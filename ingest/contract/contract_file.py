"""A contract file as plain values with their lines, from a small and unsurprising subset of YAML.

PyYAML alone silently keeps the last of two equal keys and reads `no` as false and 012 as ten. A contract decides where money ends up,
so every such surprise is an error here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ingest.contract.problem import Loc, LocatedProblem, Problem, key_text, shown

_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
# Numbers in YAML 1.2's core schema. PyYAML (YAML 1.1) reads some of them as text, and some other text as numbers.
_NUMBER_TO_OTHERS = re.compile(
    r"0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


@dataclass
class ContractFile:
    """A file after reading: `data` is its top mapping, or None if that is unreadable; `shown_as` is its path in messages."""

    shown_as: str
    data: dict[str, Any] | None = None
    lines: dict[Loc, int] = field(default_factory=lambda: {(): 1})
    problems: list[Problem] = field(default_factory=list)

    def located(self, problem: Problem) -> LocatedProblem:
        """The problem with its line: the line of its key, or of the nearest enclosing key."""
        known = next(problem.loc[:n] for n in range(len(problem.loc), -1, -1) if problem.loc[:n] in self.lines)
        return LocatedProblem(self.shown_as, self.lines[known], key_text(problem.loc), problem.found, problem.expected)

    def stop(self, line: int, found: str, expected: str) -> ContractFile:
        """Record a problem that makes the rest of the file unreadable."""
        self.data, self.lines, self.problems = None, {(): line}, [Problem((), found, expected)]
        return self


def read_contract_file(path: Path, shown_as: str) -> ContractFile:
    """Read one file. Never raises because of its content: `problems` lists what is wrong."""
    file = ContractFile(shown_as)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return file.stop(error.object[: error.start].count(b"\n") + 1, "the text is not UTF-8", "a file encoded in UTF-8")
    except OSError as error:
        return file.stop(1, f"the file cannot be read: {error.strerror}", "a readable file")
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                return file.stop(_line(event), f"the alias *{event.anchor}", "the value itself: aliases and merge keys are not supported")
            if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
                return file.stop(_line(event), f"the tag {getattr(event, 'tag', '')}", "a value without a tag")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return _syntax_problem(file, error)
    except yaml.YAMLError as error:  # a character that YAML does not allow
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        return file.stop(line, "a control character", "printable text")
    except RecursionError:
        return file.stop(1, "values nested too deeply", "a contract as docs/reference/contracts.md describes it")
    if node is None:
        return file.stop(1, "the file is empty", "a contract: pipeline, table, source, columns, event_id, mode")
    if not isinstance(node, yaml.MappingNode):
        return file.stop(_line(node), "the file is not a mapping", "keys with values at its top: pipeline: ..., table: ...")
    file.data = _mapping(file, node, ())
    return file


def _syntax_problem(file: ContractFile, error: yaml.MarkedYAMLError) -> ContractFile:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    message = error.problem or "cannot be read"
    if "'\\t'" in message:
        return file.stop(line, "a tab", "spaces: YAML does not indent with tabs")
    if "single document" in f"{error.context}":
        return file.stop(line, "a second document (---)", "one contract in a file")
    context = f" {error.context}" if error.context else ""
    column = f" at character {mark.column + 1}" if mark else ""
    return file.stop(
        line,
        f"this is not YAML: {message}{context}{column}",
        "YAML; text with : # [ ] { } , or a leading quote, *, &, !, %, @ needs quotes",
    )


def _line(at: Any) -> int:
    return int(at.start_mark.line) + 1


def _mapping(file: ContractFile, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            file.lines.setdefault((*loc, "?"), _line(key_node))
            file.problems.append(Problem((*loc, "?"), "a key that is not text", "a word as the key"))
            continue
        key = str(key_node.value)
        here = (*loc, key)
        if key in made:
            twice = (*loc, f"{key} ")  # a separate place, so that the message names the line of the second key
            file.lines[twice] = _line(key_node)
            file.problems.append(Problem(twice, f"the key {shown(key)} appears twice, first in line {file.lines[here]}", "each key once"))
            continue
        file.lines[here] = _line(key_node)
        made[key] = _value(file, value_node, here)
    return made


def _value(file: ContractFile, node: yaml.Node, loc: Loc) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(file, node, loc)
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            file.lines[(*loc, index)] = _line(item)
            items.append(_value(file, item, (*loc, index)))
        return items
    text = str(node.value)
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return text
    return _plain(file, text, node.tag, loc)


def _plain(file: ContractFile, text: str, tag_of_yaml_1_1: str, loc: Loc) -> Any:
    """The value of text without quotes. Text that YAML versions read differently is a problem."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text in _NULLS:
        return None
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 20 else text
    if _NUMBER.fullmatch(text):
        return float(text)
    if tag_of_yaml_1_1 != "tag:yaml.org,2002:str" or _NUMBER_TO_OTHERS.fullmatch(text):
        kind = tag_of_yaml_1_1.rpartition(":")[2]
        other = {"bool": "a boolean", "timestamp": "a date", "int": "a number", "float": "a number", "str": "a number"}.get(
            kind, "a special value"
        )
        wanted = "true or false, or" if kind == "bool" else "a plain number such as 1000 or 0.05, or" if other == "a number" else ""
        file.problems.append(
            Problem(
                loc, f"{text} without quotes is {other} to some YAML parsers and text to others", f"{wanted} '{text}' in quotes".strip()
            )
        )
    return text
