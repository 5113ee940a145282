"""Random predicates in Spark's SQL over fixed columns, and random rows, rich in values where Spark and Arrow could differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from ingest.contract.sql_type import to_arrow
from ingest.contract.sql_type_parser import parse_type

TYPES = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "other": "INT",
    "big": "BIGINT",
    "money": "DECIMAL(18,2)",
    "fee": "DECIMAL(18,4)",
    "wide": "DECIMAL(38,10)",
    "single": "FLOAT",
    "double": "DOUBLE",
    "share": "DOUBLE",
    "text": "STRING",
    "code": "STRING",
    "flag": "BOOLEAN",
    "known": "BOOLEAN",
    "day": "DATE",
    "due": "DATE",
    "at": "TIMESTAMP",
    "until": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "sizes": "ARRAY<INT>",
    "tags": "ARRAY<STRING>",
    "groups": "ARRAY<ARRAY<INT>>",
    "lines": "ARRAY<STRUCT<sku: STRING, quantity: INT, price: DECIMAL(12,2), ok: BOOLEAN, tags: ARRAY<STRING>>>",
    "metadata": "MAP<STRING, STRING>",
    "counts": "MAP<STRING, INT>",
    "address": "STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE, floor: INT>>",
}
COLUMNS = {name: parse_type(text) for name, text in TYPES.items()}
SCHEMA = pa.schema([(name, to_arrow(kind)) for name, kind in COLUMNS.items()])

LETTERS = "ab1 .%_$^-\n\r\u0085\u2028\tßσΣéİ😀"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LINE_ENDS = ("\n", "\r", "\r\n", "\n\n", "\u0085", "\u2028", "\u2029", "\n\r", "\r\n\n")

PATTERNS = ["^a", "a$", "^[0-9]{4}$", "^.$", "a.b", "^(a|b)+$", "^[^a]$", "[^b]$", "^a?b*$", "^$"]
PATTERNS += ["", "[ab]{1,2}", "^a|b$", ".+?$", "(a|.)$", "^[a-z0-9._-]+@[a-z.]+$", "[.]", "^.*$", "[\r\n]$", "^a$|^b$"]
PATTERNS += ["()$", "a{0}$", "é", "^[ß😀]$", "^..$", "}", "]", "[a^]", "[$.]"]
LIKES = ["a%", "%a", "%a%", "a%b", "_", "%", "", "_a%", "%.%", "a", "%$", "^a", "%😀%", "__", "% ", "%%", "(a%", "[a]", "a_b"]


def _edge(bits: int) -> Callable[[Random], int]:
    def make(random: Random) -> int:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return random.choice((0, 1, -1, 2, 3, random.randint(-5, 10), low, high, low + 1, random.randint(low, high)))

    return make


def _text(random: Random) -> str:
    chosen = random.choice(("", "a", "b", "ab", "1234", " a ", "A", "", "".join(random.choices(LETTERS, k=random.randint(0, 5)))))
    return chosen + (random.choice(LINE_ENDS) if random.random() < 0.25 else "")


def _double(random: Random) -> float:
    special = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 0.1, 0.5, 1e308, 2.0**53 + 1, 5e-324)
    return random.choice((*special, random.uniform(-2, 2), float(random.randint(-3, 3))))


def _decimal(precision: int, scale: int) -> Callable[[Random], Decimal]:
    def make(random: Random) -> Decimal:
        most = 10**precision - 1
        unscaled = random.choice((0, 1, -1, 10**scale, 5, random.randint(-500, 500), most, -most, random.randint(-most, most)))
        return Decimal(f"{unscaled}E-{scale}")

    return make


def value(kind: pa.DataType, random: Random, nulls: float = 0.15) -> Any:
    """A value of this type, often an edge of it."""
    if random.random() < nulls:
        return None
    if pa.types.is_list(kind):
        return [value(kind.value_type, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if pa.types.is_map(kind):
        return [(key, value(kind.item_type, random)) for key in ("k", "a", "")[: random.randint(0, 3)]]
    if pa.types.is_struct(kind):
        return {kind.field(at).name: value(kind.field(at).type, random) for at in range(kind.num_fields)}
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)(random)
    if pa.types.is_integer(kind):
        return _edge(kind.bit_width)(random)
    if pa.types.is_floating(kind):
        return _double(random)
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_date(kind):
        return date(2024, 2, 28) + timedelta(days=random.choice((0, 1, 2, 3, -20_000, random.randint(-700_000, 2_900_000))))
    if pa.types.is_timestamp(kind):
        at = EPOCH + timedelta(microseconds=random.choice((0, -1, 1_704_067_200_000_000, random.randint(-6 * 10**16, 2 * 10**17))))
        return at if kind.tz else at.replace(tzinfo=None)
    return _text(random)


def batch(random: Random, rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows as Arrow has them at its worst, a slice with values hidden below NULL, and the same rows made plainly."""
    dirty, clean = [], []
    for field in SCHEMA:
        full = pa.array([value(field.type, random, 0) for _ in range(rows + 5)], field.type)
        valid = pa.array([random.random() > 0.15 for _ in range(rows + 5)])
        own, inner = full.buffers()[1:], []
        if isinstance(full, pa.StructArray):
            own, inner = [], [full.field(at) for at in range(field.type.num_fields)]
        elif isinstance(full, pa.ListArray | pa.MapArray):
            own, inner = own[:1], [full.values]
        dirty.append(pa.Array.from_buffers(field.type, len(full), [valid.buffers()[1], *own], children=inner).slice(3, rows))
        clean.append(pa.array(dirty[-1].to_pylist(), field.type))
    return pa.RecordBatch.from_arrays(dirty, schema=SCHEMA), pa.RecordBatch.from_arrays(clean, schema=SCHEMA)


class Text:
    """Makes texts of expressions. `random` decides everything, parentheses too: half of the operands that need none go without."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._variables: list[tuple[str, str]] = []

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def wrapped(self, text: str) -> str:
        return text if text.isidentifier() or self.random.random() < 0.3 else f"({text})"

    def _named(self, kind: str, *columns: str) -> str:
        inner = [name for name, of in self._variables if of == kind]
        return self.random.choice(inner) if inner and self.random.random() < 0.6 else self.random.choice(columns)

    def whole_column(self) -> str:
        return self._named("whole", "tiny", "small", "whole", "other", "big", "counts['k']", "address.geo.floor", "`whole`")

    def number(self, depth: int) -> str:
        """Any number."""
        if depth <= 0 or self.random.random() < 0.25:
            return self.one(
                self.whole_column(), self.whole_literal(), self.decimal(0), self.one("double", "share", "single", "address.geo.lat")
            )
        kind = self.random.random()
        a, b = self.wrapped(self.number(depth - 1)), self.wrapped(self.number(depth - 1))
        if kind < 0.5:
            return f"{a} {self.one('+', '-', '*', '/', '%')} {b}"
        if kind < 0.6:
            return f"-{a}" if self.random.random() < 0.5 else f"abs({a})"
        return self._chosen(a, b) if kind < 0.75 else self.sized(depth) if kind < 0.9 else self.decimal(depth)

    def family(self, depth: int) -> Callable[[], str]:
        """Makers of numbers that are likely to fit beside one another."""
        return self.random.choice((lambda: self.whole(depth), lambda: self.decimal(depth), lambda: self.double(depth)))

    def whole(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.one(self.whole_column(), self.whole_column(), self.whole_literal())
        if self.random.random() < 0.3:
            return self.sized(depth)
        a, b = self.wrapped(self.whole(depth - 1)), self.wrapped(self.whole(depth - 1))
        return self.one(f"{a} {self.one('+', '-', '*', '%')} {b}", f"-{a}", f"abs({a})", self._chosen(a, b))

    def whole_literal(self) -> str:
        return self.one(
            "0", "1", "2", "-1", "- 1", "100", "2147483647", "-2147483648", "2147483648", "-(2147483648)", "9223372036854775807"
        )

    def decimal(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            price = self._named("decimal", "money", "fee", "wide", "money")
            return self.one(price, price, "0.5", "1.50", "-0.01", "5.", ".25", "0.00", "1", "whole", "tiny", "123456789012.34")
        a, b = self.wrapped(self.decimal(depth - 1)), self.wrapped(self.decimal(depth - 1))
        return self.one(f"{a} {self.one('+', '-', '*')} {b}", f"-{a}", f"abs({a})", self._chosen(a, b))

    def double(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.one("double", "share", "single", "address.geo.lat", "1e0", "0e0", "-0e0", "0.1", "1.5", "1e308", "whole", "big")
        a, b = self.wrapped(self.double(depth - 1)), self.wrapped(self.double(depth - 1))
        return self.one(
            f"{a} {self.one('+', '-', '*', '/')} {b}", f"-{a}", f"abs({a})", f"{self.whole(0)} / {self.whole(0)}", self._chosen(a, b)
        )

    def sized(self, depth: int) -> str:
        arrays = ("lines", "sizes", "tags", "metadata", "counts", "groups")
        parts = (f"{self.one('year', 'month', 'day', 'dayofmonth')}({self.one('day', 'at', 'local', 'due')})", f"size({self.one(*arrays)})")
        return self.one(*parts, f"{self.one('length', 'len', 'char_length', 'character_length')}({self.text(depth - 1)})")

    def text(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.5:
            return self.one(
                self._named("text", "text", "code", "metadata['k']", "address.city"), "'a'", "' a '", "''", "'ß'", "metadata['none']"
            )
        a, b = self.text(depth - 1), self.text(depth - 1)
        functions = ("trim", "ltrim", "rtrim", "upper", "lower", "ucase", "lcase")
        return self.one(f"{self.one(*functions)}({a})", f"nullif({a}, {b})", self._chosen(a, b))

    def time(self) -> tuple[str, str, str]:
        moment = self.one("'1970-01-01 00:00:00Z'", "'2024-01-01T00:00:00.000000Z'", "'2024-02-29 23:59:59.999999Z'")
        kinds = (
            ("at", "until", f"TIMESTAMP {moment}"),
            ("day", "due", f"DATE {self.one(*(repr(t) for t in ('2024-02-29', '0001-01-01')))}"),
        )
        return self.random.choice((*kinds, ("local", "local", "local")))

    def _chosen(self, a: str, b: str) -> str:
        """A choice of two values of one family."""
        test = self.predicate(0)
        case = f"CASE WHEN {test} THEN {a} WHEN {self.predicate(0)} THEN {b}{self.one('', f' ELSE {a}')} END"
        return self.one(f"coalesce({a}, {b})", f"{self.one('nvl', 'ifnull')}({a}, {b})", f"if({test}, {a}, {b})", case)

    def operands(self, depth: int) -> tuple[str, str, str]:
        """Three values that can be compared."""
        kind = self.random.random()
        if kind < 0.2:
            return self.time() if kind < 0.15 else ("flag", "known", "true")
        maker = self.random.choice((self.family(depth), self.family(depth), lambda: self.text(depth), lambda: self.number(depth)))
        return maker(), maker(), maker()

    def predicate(self, depth: int) -> str:
        """A BOOLEAN expression, if the operands happen to fit."""
        kind = self.random.random()
        if depth > 0 and kind < 0.35:
            a, b = self.wrapped(self.predicate(depth - 1)), self.wrapped(self.predicate(depth - 1))
            return self.one(
                f"{a} AND {b}", f"{a} OR {b}", f"NOT {a}", f"! {a}", f"{a} = {b}", f"coalesce({a}, {b})", f"{a} IS {self._not()}TRUE"
            )
        if depth > 0 and kind < 0.5:
            return self._quantified(depth)
        a, b, c = map(self.wrapped, self.operands(depth))
        if kind < 0.75:
            return f"{a} {self.one('=', '!=', '<>', '==', '<', '<=', '>', '>=', '<=>')} {b}"
        if kind < 0.9:
            text = self.text(depth)
            like = f"LIKE '{self.one(*LIKES)}'" if self.random.random() < 0.5 else f"RLIKE '{self.one(*PATTERNS)}'"
            part = f"{self.one('startswith', 'endswith', 'contains')}({text}, '{self.one('a', '', ' ', 'ß')}')"
            return self.one(f"{text} {self._not()}{like}", part, f"regexp_like({text}, '{self.one(*PATTERNS)}')")
        listed = f"IN ({a}, {b}, {self.one(c, 'NULL', c)})"
        anything = self.one(*TYPES)
        tests = (f"{c} {self._not()}{listed}", f"{c} {self._not()}BETWEEN {a} AND {b}", f"{a} IS {self._not()}DISTINCT FROM {b}")
        return self.one(
            *tests, f"{anything} IS {self._not()}NULL", f"{self.one('isnull', 'isnotnull')}({anything})", "flag", "flag = known"
        )

    def _not(self) -> str:
        return self.one("", "NOT ")

    def _quantified(self, depth: int) -> str:
        name = f"x{len(self._variables)}"
        choices: Sequence[tuple[str, list[tuple[str, str]]]] = (
            ("sizes", [(name, "whole")]),
            ("tags", [(name, "text")]),
            ("lines", [(f"{name}.quantity", "whole"), (f"{name}.sku", "text"), (f"{name}.price", "decimal")]),
            ("groups", [(f"size({name})", "whole")]),
        )
        array, variables = self.random.choice(choices)
        before = list(self._variables)
        self._variables += variables
        test = self.predicate(depth - 1)
        if array == "groups" and self.random.random() < 0.5:
            test = f"exists({name}, y{len(before)} -> y{len(before)} > size({name}))"
        if array == "lines" and self.random.random() < 0.3:
            test = f"forall({name}.tags, tag{len(before)} -> tag{len(before)} != {name}.sku) AND {self.wrapped(test)}"
        self._variables = before
        return f"{self.one('forall', 'exists')}({array}, {name} -> {test})"
