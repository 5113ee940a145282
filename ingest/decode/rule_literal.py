"""Literals of row rules with the types that Spark gives them."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from ingest.decode.rule_expression import Expression
from ingest.decode.rule_refusal import Untranslatable
from ingest.decode.rule_types import BOOLEAN, DOUBLE, INT, TEXT, decimal, literal

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY)
_UTC_TIME = re.compile(rf"{_DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.][0-9]{{1,6}})?Z")


def constant(tree: exp.Literal | exp.Boolean | exp.Null) -> Expression:
    """A text, number, TRUE, FALSE or NULL."""
    if isinstance(tree, exp.Null):
        return literal(None, pa.null())
    if isinstance(tree, exp.Boolean):
        return literal(bool(tree.this), BOOLEAN)
    return literal(tree.name, TEXT) if tree.is_string else number(tree.name)


def number(text: str) -> Expression:
    """Digits are INT, or BIGINT if they need it; with a point they are a DECIMAL of just these digits, with an exponent a DOUBLE."""
    if re.fullmatch(r"-?[0-9]+", text):
        whole = int(text)
        if not -(1 << 63) <= whole < 1 << 63:
            raise Untranslatable("a whole number beyond BIGINT")
        return literal(whole, INT if -(1 << 31) <= whole < 1 << 31 else pa.int64())
    if re.fullmatch(r"-?(?:[0-9]+[.][0-9]*|[.][0-9]+)", text):
        exact = Decimal(text)
        _, digits, exponent = exact.as_tuple()
        scale = -int(exponent)
        return literal(exact, decimal(max(len(digits), scale), scale))
    if re.fullmatch(r"-?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)[eE][+-]?[0-9]+", text) and math.isfinite(double := float(text)):
        return literal(double, DOUBLE)
    raise Untranslatable(f"the number {text}")


def time(tree: exp.Cast) -> Expression:
    """DATE '…' or TIMESTAMP '…Z'. Spark's other casts have rules of their own; without a zone, a time depends on the session's."""
    text = tree.this.name if isinstance(tree.this, exp.Literal) and tree.this.is_string else ""
    kind = tree.to.sql("spark")
    try:
        if kind == "DATE" and _DATE.fullmatch(text):
            return literal(date.fromisoformat(text), pa.date32())
        if kind == "TIMESTAMP" and _UTC_TIME.fullmatch(text):
            return literal(datetime.fromisoformat(text), pa.timestamp("us", "UTC"))
    except ValueError as error:
        raise Untranslatable(f"{kind} '{text}', which does not exist") from error
    raise Untranslatable(f"{tree.sql('spark')[:80]}; of casts only DATE '2024-01-01' and TIMESTAMP '2024-01-01 00:00:00Z' are translated")
