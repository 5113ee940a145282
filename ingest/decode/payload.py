"""The payload of an event as one hash, which shows whether two copies of an event id are equal or in conflict (I3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.contract.definition import RAW_COLUMNS, Contract


def payload_hash(contract: Contract) -> Column:
    """XXH64 of the decoded columns, a BIGINT. A NULL column does not change the hash, so a column that is added later changes nothing.

    Tables store the hash (`conflicts: table`), so it must stay the same for values without a NULL in an array or map. It distinguishes such
    NULLs. Without them, values that differ only in where an inner array or map ends (`[[1, 2]]`, `[[1], [2]]`) have the same hash.
    """
    columns = RAW_COLUMNS if contract.source.format == "raw" else contract.columns
    return F.xxhash64(*(part for column in columns for part in _parts(column.name, column.data_type, F.col(f"`{column.name}`"))))


def _parts(name: str, kind: T.DataType, value: Column) -> Iterator[Column]:
    """The name, then the value: NULL adds nothing to the hash, so without names it would miss a value that moved to another column."""
    yield F.when(value.isNotNull(), F.lit(name))
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _parts(f"{name}.{field.name}", field.dataType, value[field.name])
    else:
        yield _hashable(kind, value)
        if isinstance(kind, T.ArrayType | T.MapType):
            yield _nulls(kind, value)


def _nulls(kind: T.DataType, value: Column) -> Column:
    """A hash of where an array or map has NULLs, which XXH64 skips: `[null, 1]` is not `[1, null]`. NULL if there are none."""
    text = F.to_json(_hashable(kind, value), {"ignoreNullFields": "false"})
    return F.when(_has_null(kind, value), F.xxhash64(F.lit("with nulls"), text))


def _has_null(kind: T.DataType, value: Column) -> Column:
    """Whether this value contains a NULL; NULL if the value itself is NULL."""
    if isinstance(kind, T.StructType):
        missing = (value[field.name].isNull() | _has_null(field.dataType, value[field.name]) for field in kind.fields)
        return reduce(or_, missing, F.lit(False))
    if isinstance(kind, T.ArrayType | T.MapType):
        inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        items = value if isinstance(kind, T.ArrayType) else F.map_values(value)
        return F.exists(items, lambda item: item.isNull() | _has_null(inner, item))
    return F.lit(False)


def _hashable(kind: T.DataType, value: Column) -> Column:
    """The value with each MAP replaced by its entries in key order, because Spark does not hash a MAP."""
    if not _has_map(kind):
        return value
    if isinstance(kind, T.MapType):
        inner = kind.valueType
        entries = F.transform(F.map_entries(value), lambda entry: F.struct(entry["key"], _hashable(inner, entry["value"])))
        return F.array_sort(entries)
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: _hashable(element, each))
    assert isinstance(kind, T.StructType)
    return F.when(value.isNotNull(), F.struct(*(_hashable(field.dataType, value[field.name]).alias(field.name) for field in kind.fields)))


def _has_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or (isinstance(kind, T.ArrayType) and _has_map(kind.elementType))
