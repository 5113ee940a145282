"""The columns of a comparison: which form the key, which are compared, and which are left out, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ingest.contract.problem import one_of
from ingest.delta.answer import sql_type
from ingest.runtime.errors import InvalidInput

PROVENANCE = "_"


@dataclass(frozen=True)
class Columns:
    """`key` and `values` with the types in which both tables are compared. Without a key, all columns together are the key.

    `ignored` are left out because of their names, `only` are in one table only, `unlike` have types without a common one.
    """

    key: tuple[str, ...]
    values: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    ignored: tuple[str, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    unlike: Mapping[str, tuple[str, str]]

    @property
    def same(self) -> bool:
        """Whether both tables have the same columns, as far as they are compared."""
        return not (any(self.only) or self.unlike)

    @property
    def sql(self) -> str:
        """The names for a SELECT."""
        return ", ".join("`" + name.replace("`", "``").replace("{", "{{").replace("}", "}}") + "`" for name in self.types)

    def alike(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the common types."""
        columns = [
            column.cast(kind) if _casts(kind) and column.type != kind else column
            for column, kind in zip(batch.columns, self.types.values(), strict=True)
        ]
        return pa.record_batch(columns, names=list(self.types))

    def key_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the key."""
        return [batch[name] for name in self.key]

    def values_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The other compared columns."""
        return [batch[name] for name in self.values]


def choose(here: pa.Schema, there: pa.Schema, key: Sequence[str], chosen: Collection[str] | None, ignored: Collection[str]) -> Columns:
    """The columns to compare. Columns whose name begins with `_` are ignored unless they are in the key or chosen.

    Raises InvalidInput COMPARE_COLUMN for a name that neither table has, or a key column that one of them lacks or has as another type.
    """
    both = [name for name in here.names if name in there.names]
    for name in (*key, *(chosen or ()), *ignored):
        known = both if name in key else [*here.names, *there.names]
        if name not in known:
            found = f"{'not both tables have' if name in key else 'neither table has'} a column {name}."
            raise _column(found, f"{one_of(known, name)}.")
    hidden = {name for name in (*here.names, *there.names) if name.startswith(PROVENANCE) and chosen is None}
    left_out = (hidden | set(ignored)) - set(key)

    def wanted(name: str) -> bool:
        return name not in left_out and (chosen is None or name in chosen or name in key)

    types: dict[str, pa.DataType] = {}
    unlike: dict[str, tuple[str, str]] = {}
    for name in filter(wanted, both):
        kind = _common(here.field(name).type, there.field(name).type)
        if kind is not None:
            types[name] = kind
        elif name in key:
            raise _column(f"the key column {name} has types without a common one.", "a key that both tables have in one type.")
        else:
            unlike[name] = sql_type(here.field(name).type), sql_type(there.field(name).type)
    if not types:
        raise _column("no column is left to compare.", "at least one column that both tables have.")
    only_here, only_there = (tuple(filter(wanted, (n for n in a.names if n not in b.names))) for a, b in ((here, there), (there, here)))
    names = tuple(key) or tuple(types)
    values = tuple(name for name in types if name not in names)
    return Columns(names, values, types, tuple(sorted(left_out & {*here.names, *there.names})), (only_here, only_there), unlike)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    t = pa.types
    if sql_type(one) == sql_type(other):
        return one
    if t.is_integer(one) and t.is_integer(other):
        return pa.int64()
    if t.is_floating(one) and t.is_floating(other):
        return pa.float64()
    if t.is_decimal(one) and t.is_decimal(other):
        return pa.decimal256(76, max(one.scale, other.scale))
    return None


def _casts(kind: pa.DataType) -> bool:
    """Whether values may come in another type: wider numbers, or a partition column as a dictionary. Texts and nested values stay."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _column(found: str, expected: str) -> InvalidInput:
    return InvalidInput("COMPARE_COLUMN", found, expected=expected, remedy="correct --key, --columns or --ignore.")
