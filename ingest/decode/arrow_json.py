"""Decode Arrow batches of JSON texts into Arrow batches of events. Spark runs this in its Python workers.

docs/reference/contracts.md has the rules. A typed decoder (msgspec) reads nearly every record. It accepts some records that break the
rules; checks on the columns and on the text find them. exact_json.py reads these records again, and those that the typed decoder refuses.
It alone decides what is wrong with a record. So the typed decoder and its checks may accept too few records, never too many.
"""

from __future__ import annotations

import binascii
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Meta, Raw
from msgspec.structs import astuple

from ingest.decode.exact_json import BASE64, DecodeFault, ExactReader

VALUE, REASON, DETAIL = "__value", "__reason", "__detail"
RAW = (VALUE, "__key", "__headers")
UNKNOWN = pa.field("_unknown", pa.map_(pa.string(), pa.string()))
FAULT = (pa.field(REASON, pa.string()), pa.field(DETAIL, pa.string()))

# Texts that Arrow converts: days and times that exist, in years where no zone offset leaves the calendar.
_DAY = (
    r"(?:[12][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|20(?:[02468][048]|[13579][26])-02-29)"
)
_TIME = rf"{_DAY}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{{1,6}})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
# A negative zero that is a whole number: the typed decoder loses its sign.
_MINUS_ZERO = r"-0[ \t\r\n,}\]]"
_QUOTE, _COLON, _BLANK = b'": '
_NULL = Raw(b"null")
# Keys that a count of quotes before a colon misses: those with white space between.
_HIDDEN_KEY = r'"[ \t\r\n]+:'


@dataclass(frozen=True)
class Plan:
    """Everything that a worker needs to decode records.

    `events` are the event's columns, `event_id` those of the event id, `unknown` is the contract's `unknown_fields`.
    """

    events: pa.Schema
    event_id: tuple[str, ...]
    unknown: str

    @property
    def columns(self) -> list[pa.Field]:
        """The columns that decoding adds to a record: the event's, `_unknown` if it is kept, the reason code and its detail."""
        return [*self.events, *([UNKNOWN] if self.unknown == "keep" else []), *FAULT]


class BatchDecoder:
    """Decodes batches of Kafka records (`__value BINARY` and any other columns)."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._typed = msgspec.json.Decoder(_object(plan.events)).decode
        self._floats = any(_has_float(field.type) for field in plan.events)
        self._exact = ExactReader(plan.events, plan.event_id, plan.unknown).read

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Split each batch into one of valid records and one of all others, with its own columns and the plan's. Changes the row order."""
        for batch in batches:
            with _no_collection():
                rows, taken = [], np.ones(batch.num_rows, bool)
                for at, value in enumerate(batch.column(VALUE).to_pylist()):
                    try:
                        rows.append(self._typed(value))
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):  # TypeError: a tombstone
                        taken[at] = False
                found = _fields(list(self._plan.events), len(rows), map(astuple, rows))
                del rows
            if not taken.any():
                yield self._of_others(batch)
                continue
            tried = batch if taken.all() else batch.filter(pa.array(taken))
            right = ~found.odd & (_keys(tried.column(VALUE)) == found.keys)
            if self._floats:
                right &= ~_numpy(pc.match_substring_regex(tried.column(VALUE), _MINUS_ZERO))
            if right.all():
                yield self._of_right(tried, found.arrays)
            elif right.any():
                mask = pa.array(right)
                yield self._of_right(tried.filter(mask), [array.filter(mask) for array in found.arrays])
            taken[taken] = right
            if not taken.all():
                yield self._of_others(batch.filter(pa.array(~taken)))

    def _of_right(self, records: pa.RecordBatch, events: list[pa.Array]) -> pa.RecordBatch:
        nothing = [pa.nulls(records.num_rows, field.type) for field in self._plan.columns[len(events) :]]
        return self._joined(records, [*events, *nothing])

    def _of_others(self, records: pa.RecordBatch) -> pa.RecordBatch:
        events: list[dict[str, Any]] = []
        for value in records.column(VALUE).to_pylist():
            try:
                events.append(self._exact(value))
            except DecodeFault as fault:
                events.append({**fault.event_id, REASON: fault.code, DETAIL: fault.detail})
        return self._joined(records, [pa.array([event.get(field.name) for event in events], field.type) for field in self._plan.columns])

    def _joined(self, records: pa.RecordBatch, columns: list[pa.Array]) -> pa.RecordBatch:
        """The records' columns and the decoded ones."""
        names = [*records.schema.names, *(field.name for field in self._plan.columns)]
        return pa.RecordBatch.from_arrays([*records.columns, *columns], names=names)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's collector of cycles: decoded values have none, and it would look at each of them several times."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _keys(texts: pa.Array) -> np.ndarray:
    """How many keys each JSON text has (shape (rows,)): quotes with a colon right after them. -1 if white space may hide others."""
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8)[ends[0] : ends[-1]] if ends[-1] > ends[0] else np.empty(0, np.uint8)
    # A colon is rare in a text, so only the bytes before one are looked at. The first byte of a text follows the end of another one, but a
    # text that begins with a colon was refused by the decoder.
    colons = np.flatnonzero(data == _COLON)
    before = data[colons - 1]
    starts = ends[:-1] - ends[0]
    found = np.add.reduceat(np.append(before == _QUOTE, 0), np.searchsorted(colons, starts)) if len(texts) else np.empty(0, np.int64)
    if (before <= _BLANK).any():
        found[_numpy(pc.match_substring_regex(texts, _HIDDEN_KEY))] = -1
    return np.asarray(found)


def _has_float(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_float(kind.field(at).type) for at in range(kind.num_fields))


def _object(fields: Iterable[pa.Field]) -> type[msgspec.Struct]:
    """The msgspec type of an object with exactly these fields. A nullable field may be missing."""
    described: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    renamed = {}
    for at, field in enumerate(fields):
        renamed[f"f{at}"] = field.name
        kind = _typed(field.type)
        if not field.nullable:
            described.append((f"f{at}", kind))
        else:
            described.append((f"f{at}", kind if kind is Raw else kind | None, UNSET))
    return msgspec.defstruct("Event", described, rename=renamed, forbid_unknown_fields=True, kw_only=True, gc=False)


def _typed(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind):
        return Annotated[int, Meta(ge=-(2 ** (kind.bit_width - 1)), le=2 ** (kind.bit_width - 1) - 1)]
    if pa.types.is_decimal(kind):
        return Raw  # keeps the digits as written; a number type could round them
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_list(kind):
        return list[_or_null(kind.value_type)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _or_null(kind.item_type)]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _object(kind.field(at) for at in range(kind.num_fields))
    return str


def _or_null(kind: pa.DataType) -> Any:
    typed = _typed(kind)
    return typed if typed is Raw else typed | None


@dataclass(frozen=True)
class _Fields:
    """Columns, and per row: how many JSON keys its text has if none is repeated, and whether it must be read exactly (`odd`)."""

    arrays: list[pa.Array]
    keys: np.ndarray
    odd: np.ndarray


def _fields(fields: Sequence[pa.Field], number: int, rows: Iterable[tuple[Any, ...]]) -> _Fields:
    """The columns of this number of rows, which are tuples of the fields' values."""
    keys, odd = np.full(number, len(fields)), np.zeros(number, bool)
    arrays = []
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if number else [()] * len(fields)
    for field, values in zip(fields, columns, strict=True):
        if field.nullable and UNSET in values:
            keys -= np.fromiter((value is UNSET for value in values), bool, number)
            values = [None if value is UNSET else value for value in values]
        array, inside, doubtful = _column(field.type, values)
        arrays.append(array)
        keys += inside
        odd |= doubtful
        if not field.nullable and array.null_count:
            odd |= _numpy(array.is_null())
    return _Fields(arrays, keys, odd)


def _column(kind: pa.DataType, values: Sequence[Any]) -> tuple[pa.Array, np.ndarray | int, np.ndarray | bool]:
    """A column, the number of JSON keys inside each value, and which values must be read exactly."""
    if pa.types.is_decimal(kind):
        return _decimals(kind, values)
    if pa.types.is_timestamp(kind):
        return _converted(kind, pa.array(values, pa.string()), f"^{_TIME}{_ZONE if kind.tz else ''}$")
    if pa.types.is_date(kind):
        return _converted(kind, pa.array(values, pa.string()), f"^{_DAY}$")
    if pa.types.is_binary(kind):
        wrong = np.fromiter((value is not None and BASE64.fullmatch(value) is None for value in values), bool, len(values))
        right = (None if value is None or bad else value for value, bad in zip(values, wrong, strict=True))
        return pa.array([None if value is None else binascii.a2b_base64(value) for value in right], kind), 0, wrong
    if pa.types.is_float32(kind):
        return _singles(values)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _repeated(kind, values)
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        if None not in values:
            found = _fields(fields, len(values), map(astuple, values))
            return pa.StructArray.from_arrays(found.arrays, fields=fields), found.keys, found.odd
        found = _fields(fields, len(values), ((UNSET,) * len(fields) if value is None else astuple(value) for value in values))
        there = np.fromiter((value is not None for value in values), bool, len(values))
        return pa.StructArray.from_arrays(found.arrays, fields=fields, mask=pa.array(~there)), found.keys * there, found.odd & there
    return pa.array(values, kind), 0, False


def _converted(kind: pa.DataType, texts: pa.Array, pattern: str) -> tuple[pa.Array, int, np.ndarray | bool]:
    """Let Arrow convert the texts that match the pattern. The others become NULL and are odd."""
    plain = pc.match_substring_regex(texts, pattern)
    if pc.all(plain).as_py() in (True, None):
        return texts.cast(kind), 0, False
    return pc.if_else(plain, texts, None).cast(kind), 0, _numpy(pc.invert(plain).fill_null(False))


def _decimals(kind: pa.Decimal128Type, values: Sequence[Raw | None]) -> tuple[pa.Array, int, np.ndarray | bool]:
    whole = kind.precision - kind.scale
    fraction = rf"(?:[.][0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    number = rf"-?(?:0{rf'|[1-9][0-9]{{0,{whole - 1}}}' if whole else ''}){fraction}"
    tokens = _tokens(values)
    plain = pc.match_substring_regex(tokens, rf'^(?:{number}|"{number}"|null)\0$')
    texts = pc.ascii_trim(pc.if_else(plain, tokens, None).cast(pa.string()), '"\0')
    numbers = pc.if_else(pc.equal(texts, "null"), None, texts).cast(kind)
    return numbers, 0, _numpy(pc.invert(plain).fill_null(False))


def _tokens(values: Sequence[Any]) -> pa.Array:
    """The JSON texts (Raw), each with a zero byte at its end; `null` for None."""
    given = [_NULL if value is None else value for value in values] if None in values else values
    data = b"\0".join([*given, b""])  # a Raw is a buffer: one copy of all is faster than one of each
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0) + 1
    assert len(ends) == len(given), "the typed decoder refuses a text with a zero byte"
    offsets = np.append(0, ends).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(given), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _singles(values: Sequence[float | None]) -> tuple[pa.Array, int, np.ndarray]:
    doubles = pa.array(values, pa.float64())
    numbers = np.asarray(doubles.fill_null(0.0))
    with np.errstate(over="ignore"):
        # Odd: too large, or halfway between two floats, where only the number's own digits show which is nearer. Below 2**-126 floats are
        # further apart and a halfway value has other bits, so all of these are odd.
        odd = ~np.isfinite(numbers.astype(np.float32)) | (numbers.view(np.int64) & 0x1FFFFFFF == 0x10000000)
        odd |= (numbers != 0) & (np.abs(numbers) < 2.0**-126)
    return doubles.cast(pa.float32(), safe=False), 0, odd


def _repeated(kind: pa.DataType, values: Sequence[Any]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Arrays, or maps (given as dicts). Converts the items of all of them as one column."""
    is_map = pa.types.is_map(kind)
    there = [value for value in values if value is not None]
    sizes: Iterable[int] = map(len, values) if len(there) == len(values) else (0 if value is None else len(value) for value in values)
    ends = np.cumsum([0, *sizes])
    inside = list(chain.from_iterable(value.values() if is_map else value for value in there))
    items, keys, odd = _column(kind.item_type if is_map else kind.value_type, inside)
    # A null offset makes its value null.
    missing = None if len(there) == len(values) else np.append([value is None for value in values], False)
    offsets = pa.array(ends, pa.int32(), mask=missing)
    counted = _sums(keys, ends) + (np.diff(ends) if is_map else 0)
    if is_map:
        return pa.MapArray.from_arrays(offsets, pa.array(chain.from_iterable(there), pa.string()), items), counted, _sums(odd, ends) > 0
    return pa.ListArray.from_arrays(offsets, items), counted, _sums(odd, ends) > 0


def _sums(numbers: np.ndarray | int, ends: np.ndarray) -> np.ndarray:
    """The sum of the numbers between consecutive ends."""
    sums = np.append(0, np.cumsum(np.broadcast_to(numbers, ends[-1])))
    return np.asarray(sums[ends[1:]] - sums[ends[:-1]])


def _numpy(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))
