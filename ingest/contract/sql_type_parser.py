"""The parser of column types: DDL text to a frozen tree, or an error that says what is allowed instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ingest.contract.sql_type import Array, Atomic, Decimal, Field, Map, SqlType, Struct, TypeProblem, ddl
from ingest.contract.sql_type_words import ALIASES, ATOMIC, REFUSED, nearest

DEPTH_MAX = 32  # deeper than any event seen so far; limits the recursion of parser and decoder


@lru_cache(maxsize=1024)
def parse_type(text: str) -> SqlType:
    """Parse DDL text, in any case and with Spark's aliases (INTEGER, LONG, NUMERIC, ...).

    Raises TypeProblem, with the reason, for text that does not parse and for types that a contract refuses (CHAR, VARCHAR, INTERVAL,
    VOID, VARIANT, collations).
    """
    parser = _Parser(text)
    parsed = parser.type(depth=0, below_collection=False)
    parser.end()
    return parsed


_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>[+-]?\d+)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<sign>[<>(),:]))", re.ASCII | re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'"}


def _tokens(text: str) -> Iterator[str]:
    at, end = 0, len(text.rstrip())
    while at < end:
        if not (match := _TOKEN.match(text, at)):
            raise TypeProblem(
                f"{text!r} cannot be read at {text[at:].strip()[:20]!r}",
                "a type such as STRING, DECIMAL(18,2) or ARRAY<STRUCT<name: STRING>>",
            )
        yield match.group().lstrip()
        at = match.end()


class _Parser:
    """Recursive descent over the tokens of one type."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, *wanted: str) -> str:
        token = self.next()
        if token.upper() not in wanted:
            self.fail(token, " or ".join(repr(w) for w in wanted))
        return token

    def fail(self, token: str, wanted: str) -> None:
        raise TypeProblem(
            f"{self.text!r} has {token!r}" if token else f"{self.text!r} ends too early", wanted + (" there" if token else " after it")
        )

    def end(self) -> None:
        token = self.peek()
        if token.upper() == "COLLATE":
            raise TypeProblem(f"{self.text!r} has a collation", "STRING alone: under a collation different event ids can be equal")
        if token:
            self.fail(token, "nothing more")

    def type(self, *, depth: int, below_collection: bool) -> SqlType:
        if depth > DEPTH_MAX:
            raise TypeProblem(f"a type nested deeper than {DEPTH_MAX} levels", f"at most {DEPTH_MAX} levels")
        word = self.next()
        kind = ALIASES.get(word.upper(), word.upper())
        if kind in REFUSED:
            raise TypeProblem(f"type {kind} is not supported", REFUSED[kind])
        if kind in ATOMIC:
            if self.peek() == "(" or self.peek().upper() == "COLLATE":
                self.end()
            return Atomic(kind)
        if kind == "DECIMAL":
            return self.decimal()
        if kind in ("ARRAY", "MAP", "STRUCT"):
            self.take("<")
            nested = self.nested(kind, depth + 1, below_collection)
            self.take(">")
            return nested
        raise TypeProblem(f"{self.text!r} has {word!r}, which is not a type" if word else f"{self.text!r} ends too early", nearest(kind))

    def decimal(self) -> Decimal:
        if self.peek() != "(":
            raise TypeProblem("DECIMAL without digits would be DECIMAL(10,0), without cents", "DECIMAL(p,s), such as DECIMAL(18,2)")
        self.take("(")
        precision, scale = self.number(), 0
        if self.take(",", ")") == ",":
            scale = self.number()
            self.take(")")
        return Decimal(precision, scale)

    def number(self) -> int:
        token = self.next()
        if not token.isdecimal():
            self.fail(token, "a number of digits")
        return int(token[:9])

    def nested(self, kind: str, depth: int, below_collection: bool) -> SqlType:
        if kind == "ARRAY":
            return Array(self.type(depth=depth, below_collection=True))
        if kind == "MAP":
            key = self.type(depth=depth, below_collection=True)
            if key != Atomic("STRING"):
                raise TypeProblem(f"MAP with keys of type {ddl(key)}", "MAP<STRING, ...>: keys of a JSON object are text")
            self.take(",")
            return Map(self.type(depth=depth, below_collection=True))
        fields: list[Field] = []
        while self.peek() != ">" or fields:
            fields.append(self.field(depth, below_collection))
            if self.peek() != ",":
                break
            self.take(",")
        return Struct(tuple(fields))

    def field(self, depth: int, below_collection: bool) -> Field:
        name = self.next()
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            self.fail(name, "a field's name ([A-Za-z_][A-Za-z0-9_]*)")
        if self.peek() == ":":
            self.take(":")
        field_type = self.type(depth=depth, below_collection=below_collection)
        nullable, comment = True, None
        if self.peek().upper() == "NOT":
            self.take("NOT")
            self.take("NULL")
            nullable = False
            if below_collection:
                raise TypeProblem(
                    f"{name} is NOT NULL inside an ARRAY or MAP", "no NOT NULL there: Delta does not enforce it; write a rule instead"
                )
        if self.peek().upper() == "COMMENT":
            self.take("COMMENT")
            comment = self.quoted()
        return Field(name, field_type, nullable, comment)

    def quoted(self) -> str:
        token = self.next()
        if not token.startswith("'"):
            self.fail(token, "a comment in single quotes")
        return re.sub(r"\\(.)", self.unescape, token[1:-1], flags=re.DOTALL)

    def unescape(self, match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            self.fail(match[0], r"one of \\ \' \n \t \r")
        return _ESCAPES[match[1]]
