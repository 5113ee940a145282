"""The names of column types: the supported types, their aliases, and the refused types with the reason."""

from __future__ import annotations

from difflib import get_close_matches

# Canonical name -> name in a Delta table's schema.
ATOMIC = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}

# Spark's own aliases.
ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "CHARACTER": "CHAR",
    "NULL": "VOID",
}

_PADS = "STRING, with a rule such as length(x) <= 10: CHAR pads, so that different event ids become equal, and VARCHAR fails a batch"
_NO_JSON = "a type that JSON can express"
REFUSED = {
    "CHAR": _PADS,
    "VARCHAR": _PADS,
    "INTERVAL": f"{_NO_JSON}: Delta tables cannot store intervals; use a BIGINT with the unit in the column's name, or two TIMESTAMPs",
    "VOID": "a type: a column of VOID can never hold a value",
    "VARIANT": "STRING with the JSON text, or MAP<STRING, STRING>: VARIANT is a table feature that not every reader supports",
    "TEXT": "STRING",
    "UUID": "STRING",
    "JSON": "STRING with the JSON text, or a STRUCT",
    "DATETIME": "TIMESTAMP (text with a zone) or TIMESTAMP_NTZ (without)",
    "TIME": "STRING, with a rule on its format",
    "NUMBER": "DECIMAL(p,s), BIGINT or DOUBLE",
}

_ALL = (*ATOMIC, "DECIMAL(p,s)", "ARRAY<...>", "MAP<STRING, ...>", "STRUCT<name: type, ...>")


def nearest(word: str) -> str:
    """The supported types, with a hint at the type most similar to `word`."""
    match = get_close_matches(word, [*ATOMIC, "DECIMAL", "ARRAY", "MAP", "STRUCT"], n=1)
    return f"one of {', '.join(_ALL)}" + (f" (did you mean {match[0]}?)" if match else "")
