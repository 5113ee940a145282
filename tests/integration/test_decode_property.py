"""For random JSON, decode() yields exactly the value that Python's json reads (numbers as Decimal), or quarantines the record."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.integration.records import contract, event, plain

pytestmark = pytest.mark.integration

RECORDS = 400
WHOLE = {"tiny": 8, "small": 16, "whole": 32, "big": 64}
COLUMNS = {"tiny": "TINYINT", "small": "SMALLINT", "whole": "INT", "big": "BIGINT", "money": "DECIMAL(18,2)", "long": "DECIMAL(38,10)"}
COLUMNS |= {"double": "DOUBLE", "flag": "BOOLEAN", "text": "STRING", "bytes": "BINARY", "at": "TIMESTAMP", "day": "DATE"}
DIGITS = {"money": (18, 2), "long": (38, 10)}


class Faulty(Exception):
    """The record must be quarantined."""


def require(right: bool) -> None:
    if not right:
        raise Faulty


def expected(column: str, json_text: str) -> Any:
    """The column's value by Python's own parsers and the rules of docs/reference/contracts.md. Raises Faulty."""
    value = json.loads(json_text, parse_float=Decimal)
    if value is None:
        return None
    if column in WHOLE:
        require(type(value) is int and -(2 ** (WHOLE[column] - 1)) <= value < 2 ** (WHOLE[column] - 1))
        return value
    if column in DIGITS:
        return _decimal(*DIGITS[column], value, json_text)
    if column == "double":
        require(type(value) in (int, Decimal) and math.isfinite(float(value)))
        return float(value)
    if column == "flag":
        require(type(value) is bool)
        return value
    require(isinstance(value, str))
    if column == "text":
        return value
    if column == "bytes":
        require(re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", value) is not None)
        return base64.b64decode(value)
    return _time(column, value)


def _decimal(precision: int, scale: int, value: Any, json_text: str) -> Decimal:
    text = value if isinstance(value, str) else json_text
    require(type(value) in (int, Decimal, str) and re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", text) is not None)
    require(isinstance(value, str) or len(re.sub(r"^-?0\.|[-.]", "", text)) <= 38)
    with localcontext() as context:
        context.prec = 200
        exact = Decimal(text)
        rounded = exact.quantize(Decimal(1).scaleb(-scale))
        require(rounded == exact and abs(rounded) < 10 ** (precision - scale))
        return abs(rounded) if rounded == 0 else rounded


def _time(column: str, value: str) -> str:
    shape = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    if column == "at":
        shape += r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6}0*)?(Z|[+-][0-9]{2}:[0-9]{2})"
    require(re.fullmatch(shape, value) is not None)
    try:
        if column == "day":
            return str(date.fromisoformat(value))
        moment = datetime.fromisoformat(re.sub(r"(\.[0-9]{6})0+", r"\1", value))
        require(moment.second < 60 and abs(moment.utcoffset() or timedelta()) <= timedelta(hours=18))
        text = moment.astimezone(UTC).strftime("%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
        return f"{moment.astimezone(UTC).year:04}-{text}"
    except (ValueError, OverflowError) as error:
        raise Faulty from error


def a_number(random: Random) -> str:
    digits = "".join(random.choices("0123456789", k=random.choice((1, 2, 3, 5, 10, 16, 17, 19, 20, 30, 38, 39, 45)))).lstrip("0") or "0"
    fraction = "." + "".join(random.choices("000123456789", k=random.randint(1, 24))) if random.random() < 0.4 else ""
    exponent = f"{random.choice('eE')}{random.choice(('', '+', '-'))}{random.randint(0, 400)}" if random.random() < 0.1 else ""
    return random.choice(("", "", "-")) + digits + fraction + exponent


def an_edge(random: Random) -> str:
    bits = random.choice((7, 8, 15, 16, 31, 32, 63, 64))
    return str(random.choice((1, -1)) * 2**bits + random.randint(-1, 1))


def a_double(random: Random) -> str:
    value = struct.unpack("d", random.randbytes(8))[0]
    return repr(value) if math.isfinite(value) else "0.1"


def a_text(random: Random) -> str:
    alphabet = 'ab 0"\\/{}[]:,\n\r\t\x00\x7fé\u0301ß€\u2028\ufeff😀'
    text = random.choice(["", "null", "true", "5", "-1.5", "NaN", "{}", '"', "".join(random.choices(alphabet, k=random.randint(0, 12)))])
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def a_time(random: Random) -> str:
    moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(315_537_897_600_000_000))
    offset = timezone(timedelta(minutes=random.choice((0, 0, 120, -330, 18 * 60, 19 * 60))))
    if timedelta(days=2) < moment - datetime(1, 1, 1, tzinfo=UTC) < timedelta(days=3_650_000):
        moment = moment.astimezone(offset)
    text = moment.isoformat(random.choice("T ")).replace("+00:00", "Z")
    text = text.replace("Z", random.choice(("Z", "000Z", "1Z", "", "z"))) if random.random() < 0.3 else text
    return json.dumps(random.choice((text, text, text, text[:10], text[:16], " " + text, text.replace("-", "/"))))


def a_base64(random: Random) -> str:
    text = base64.b64encode(random.randbytes(random.randint(0, 9))).decode()
    return json.dumps(random.choice((text, text, text + "=", text.replace("+", "-"), text[:-1] if len(text) % 4 == 0 else text)))


def another(random: Random) -> str:
    value = random.choice([None, True, False, [], {}, [1], {"a": 1}, "x", "1", 0])
    return json.dumps(value)


MAKERS: dict[str, tuple[Callable[[Random], str], ...]] = {
    **dict.fromkeys(WHOLE, (a_number, an_edge)),
    "money": (a_number, lambda random: json.dumps(a_number(random)), lambda random: f"{random.randint(-(10**18), 10**18) / 100:.2f}"),
    "long": (a_number, lambda random: json.dumps(a_number(random)), a_number),
    "double": (a_number, a_double),
    "flag": (another,),
    "text": (a_text,),
    "bytes": (a_base64,),
    "at": (a_time,),
    "day": (a_time, lambda random: json.dumps(f"{random.randint(0, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 31):02}")),
}


@settings(max_examples=2, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_decode_yields_exactly_pythons_value_or_quarantines(spark: SparkSession, seed: int) -> None:
    """I5: no value is rounded, guessed or lost. Valid values are stored; for invalid ones, the detail names the column."""
    random = Random(seed)
    columns = random.choices(list(COLUMNS), k=RECORDS)
    cases = [(column, (another if random.random() < 0.1 else random.choice(MAKERS[column]))(random)) for column in columns]
    rows = plain(spark, contract(COLUMNS), [event(**{column: json_text}) for column, json_text in cases])
    differences = []
    for (column, json_text), row in zip(cases, rows, strict=True):
        try:
            wanted: Any = ("value", repr(expected(column, json_text)))
        except Faulty:
            wanted = ("fault", column)
        fault = row["__reason"] is not None
        value = bytes(row[column]) if isinstance(row[column], bytearray) else row[column]
        found = ("fault", row["__detail"]) if fault else ("value", repr(value))
        if found != wanted:
            differences.append(f"{column} {json_text}: found {found} {row['__reason']}, wanted {wanted}")
    assert differences == []
