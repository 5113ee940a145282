"""Column types of a contract: the subset of Spark's DDL that a JSON event can fill and that Delta stores exactly.

`parse_type` (sql_type_parser.py) parses DDL text into a frozen tree, and `ddl` writes the canonical text of a tree. `to_delta` converts
a tree to the form in a Delta table's schema, `to_spark` to a pyspark type, `to_arrow` to a pyarrow type. None of them needs a JVM. Only
`to_spark` imports pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from ingest.contract.sql_type_words import ATOMIC

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

DeltaType = str | dict[str, Any]

# The types whose names in Delta's schema differ from SQL.
_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}

DECIMAL_DIGITS_MAX = 38  # Spark's and Parquet's limit


class TypeProblem(ValueError):
    """A type that a contract refuses: `found` names it and the reason, `expected` what is allowed."""

    def __init__(self, found: str, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(f"{found}; expected {expected}")


@dataclass(frozen=True)
class Atomic:
    """A type without parameters; `kind` is one of `ATOMIC`."""

    kind: str


@dataclass(frozen=True)
class Decimal:
    """An exact number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int
    kind: str = "DECIMAL"

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= DECIMAL_DIGITS_MAX and 0 <= self.scale <= self.precision):
            found = f"DECIMAL({self.precision},{self.scale}) does not exist"
            raise TypeProblem(found, f"DECIMAL(p,s) with 1 <= p <= {DECIMAL_DIGITS_MAX} and 0 <= s <= p, such as DECIMAL(18,2)")


@dataclass(frozen=True)
class Array:
    """A list of `element`. Elements may be null, because Delta does not enforce NOT NULL below an array."""

    element: SqlType
    kind: str = "ARRAY"


@dataclass(frozen=True)
class Map:
    """A map from STRING, the type of a JSON object's keys, to `value`."""

    value: SqlType
    kind: str = "MAP"


@dataclass(frozen=True)
class Field:
    """One field of a STRUCT."""

    name: str
    type: SqlType
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True)
class Struct:
    """Named fields in order; their names must differ by more than case."""

    fields: tuple[Field, ...]
    kind: str = "STRUCT"

    def __post_init__(self) -> None:
        if not self.fields:
            raise TypeProblem("STRUCT<> has no field", "at least one field: STRUCT<name: type, ...>")
        seen: dict[str, str] = {}
        for field in self.fields:
            if (other := seen.setdefault(field.name.lower(), field.name)) is not field.name:
                raise TypeProblem(f"STRUCT has the fields {other!r} and {field.name!r}", "names that differ by more than their case")


SqlType = Atomic | Decimal | Array | Map | Struct


def ddl(sql_type: SqlType, *, comments: bool = True) -> str:
    """The canonical DDL text, such as `ARRAY<STRUCT<sku: STRING, price: DECIMAL(12,2)>>`; `parse_type` reads it back."""
    match sql_type:
        case Atomic():
            return sql_type.kind
        case Decimal():
            return f"DECIMAL({sql_type.precision},{sql_type.scale})"
        case Array():
            return f"ARRAY<{ddl(sql_type.element, comments=comments)}>"
        case Map():
            return f"MAP<STRING, {ddl(sql_type.value, comments=comments)}>"
        case Struct():
            return f"STRUCT<{', '.join(_field_ddl(field, comments) for field in sql_type.fields)}>"
        case _:
            assert_never(sql_type)


def _field_ddl(field: Field, comments: bool) -> str:
    text = f"{field.name}: {ddl(field.type, comments=comments)}" + ("" if field.nullable else " NOT NULL")
    return f"{text} COMMENT {_quoted(field.comment)}" if comments and field.comment is not None else text


def _quoted(text: str) -> str:
    for letter, char in (("\\", "\\"), ("'", "'"), ("n", "\n"), ("t", "\t"), ("r", "\r")):
        text = text.replace(char, f"\\{letter}")
    return f"'{text}'"


def to_delta(sql_type: SqlType) -> DeltaType:
    """The type in the JSON of a Delta table's schema (PROTOCOL.md, Schema Serialization Format)."""
    match sql_type:
        case Atomic():
            return ATOMIC[sql_type.kind]
        case Decimal():
            return f"decimal({sql_type.precision},{sql_type.scale})"
        case Array():
            return {"type": "array", "elementType": to_delta(sql_type.element), "containsNull": True}
        case Map():
            return {"type": "map", "keyType": "string", "valueType": to_delta(sql_type.value), "valueContainsNull": True}
        case Struct():
            return {"type": "struct", "fields": [field_to_delta(field) for field in sql_type.fields]}
        case _:
            assert_never(sql_type)


def field_to_delta(field: Field) -> dict[str, Any]:
    """A field or a column in the JSON of a Delta table's schema."""
    metadata = {} if field.comment is None else {"comment": field.comment}
    return {"name": field.name, "type": to_delta(field.type), "nullable": field.nullable, "metadata": metadata}


def text_of(kind: DeltaType) -> str:
    """A type from a Delta table's schema in Spark's notation (simpleString)."""
    if isinstance(kind, str):
        return _SQL_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        fields = (f"{field['name']}:{text_of(field['type'])}" for field in kind["fields"])
        return f"struct<{','.join(fields)}>"
    if kind["type"] == "array":
        return f"array<{text_of(kind['elementType'])}>"
    return f"map<{text_of(kind['keyType'])},{text_of(kind['valueType'])}>"


def to_spark(sql_type: SqlType) -> DataType:
    """The pyspark type; comments of struct fields become the fields' metadata, as in Spark's own parser."""
    from pyspark.sql.types import StructType

    return StructType.fromJson({"fields": [field_to_delta(Field("_", sql_type))]}).fields[0].dataType


def to_arrow(sql_type: SqlType) -> pa.DataType:
    """The pyarrow type that Spark exchanges with Python: times in microseconds, a TIMESTAMP in UTC."""
    import pyarrow as pa

    match sql_type:
        case Atomic():
            named = {"BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()}
            named |= {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32()}
            named |= {"TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us")}
            return named[sql_type.kind]
        case Decimal():
            return pa.decimal128(sql_type.precision, sql_type.scale)
        case Array():
            return pa.list_(to_arrow(sql_type.element))
        case Map():
            return pa.map_(pa.string(), to_arrow(sql_type.value))
        case Struct():
            return pa.struct([pa.field(field.name, to_arrow(field.type), field.nullable) for field in sql_type.fields])
        case _:
            assert_never(sql_type)


def not_null_problem(sql_type: SqlType, nullable: bool, name: str) -> TypeProblem | None:
    """The problem if Delta cannot enforce a NOT NULL inside the column `name`, or None.

    Delta's documentation on constraints: a NOT NULL field of a struct requires that the struct itself is NOT NULL too.
    """
    if isinstance(sql_type, Struct):
        for field in sql_type.fields:
            inner = f"{name}.{field.name}"
            if nullable and not field.nullable:
                return TypeProblem(
                    f"{inner} is NOT NULL inside {name}, which may be null", f"{name} not null too, or {inner} without NOT NULL"
                )
            if problem := not_null_problem(field.type, field.nullable, inner):
                return problem
    return None
