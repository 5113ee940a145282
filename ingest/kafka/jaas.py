"""Parses the login in `sasl.jaas.config`, the JAAS text that Kafka's clients expect."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# The syntax of Java's StreamTokenizer: a bare word, or a string in single or double quotes with escapes.
_OPTION = re.compile(r"""([\w$.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\w$.]+)""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class Login:
    """Options of a login module by name. `repr` hides their values; `username` and `password` are None if absent."""

    options: dict[str, str] = field(repr=False)

    @staticmethod
    def parse(jaas: str) -> Login:
        """Read `<module> required username="u" password="p";`."""
        return Login({name: _unquoted(value) for name, value in _OPTION.findall(jaas)})

    @property
    def username(self) -> str | None:
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(lambda found: _character(found.group(1)), value[1:-1])


def _character(escaped: str) -> str:
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _LETTERS.get(escaped, escaped)
