"""Event ids: the identity by which a table deduplicates.

`mint` is for producers that create an event. Its ids rise with time, so the ids of a micro-batch form a narrow range, which few
files of the table overlap. `derive` is for events that have business keys but no id. The same keys always give the same id, so a retry is
recognised. Neither normalises text: ids that differ in case, spaces or Unicode form are different ids.

`stamp` puts an id where the table's contract reads it. An existing id stays, so an event keeps its id through every retry, by any
sender. Stamp an event once, when you create it, and store or send the result of `stamp`.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ingest.runtime.errors import InvalidInput

if TYPE_CHECKING:
    from ingest.contract.definition import Contract

# Another namespace would change every derived id: a table would insert its existing events again under new ids.
NAMESPACE: Final = uuid.UUID("6f1c9a44-9d0b-4c1f-8f57-0b5a3d7e21c8")

_TAIL_BITS: Final = 74  # RFC 9562 leaves these after time, version and variant: 12 bits rand_a and 62 bits rand_b
_TAIL_END: Final = 1 << _TAIL_BITS
_MS_END: Final = 1 << 48
# Ids of one millisecond differ by a random step. So nobody can guess the next id, and two forked processes that share the
# last id diverge at once. 2**32 leaves room for 2**42 ids in a millisecond.
_STEP_END: Final = 1 << 32

_lock = threading.Lock()
_last: tuple[int, int] = (-1, 0)  # (milliseconds, tail) of the last id that this process minted


def mint(now_ms: int | None = None, random: Random | None = None) -> str:
    """A new UUIDv7 (RFC 9562, method 2 of its section 6.2) in its canonical text of 36 characters.

    `now_ms` is the time in milliseconds since 1970-01-01 UTC (default: the clock's). Within a process, ids rise strictly across
    all threads. If the clock is set back, `mint` keeps using the time of the last id. With `random`, for samples and tests, the id
    is a pure function of `now_ms` and the draw and ignores the last id. Raises ValueError if `now_ms` is negative or beyond 48 bits.
    """
    ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if not 0 <= ms < _MS_END:
        raise ValueError(f"now_ms is {ms}; expected 0 <= now_ms < 2**48 (milliseconds since 1970-01-01 UTC).")
    if random is not None:
        return _text(ms, random.getrandbits(_TAIL_BITS))
    return _text(*_next(ms))


def derive(*parts: str | int | bytes) -> str:
    """The event id for business keys: a UUIDv5 (SHA-1) in our namespace, over each part's type, length and bytes.

    The encoding is unambiguous: ("a", "bc") and ("ab", "c") differ, and so do 1, "1" and b"1". Nothing is normalised.
    Raises ValueError without parts or for text that UTF-8 cannot encode (a lone surrogate). Raises TypeError for other types:
    floats and times have several texts for one value, so the caller must choose one.
    """
    if not parts:
        raise ValueError("derive() got no parts; expected at least one business key.")
    digest = hashlib.sha1(NAMESPACE.bytes, usedforsecurity=False)
    for part in parts:
        tag, data = _encoded(part)
        digest.update(b"%c%d:" % (tag, len(data)))
        digest.update(data)
    return str(uuid.UUID(bytes=digest.digest()[:16], version=5))


@dataclass(frozen=True, slots=True)
class Stamped:
    """An event with its id. The caller serialises `value` in the contract's format and sends `key` and `headers` with the record."""

    event_id: tuple[str, ...]
    value: Mapping[str, Any]
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = field(default=())


def stamp(
    contract: Contract,
    value: Mapping[str, Any],
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    natural_key: Sequence[str] = (),
) -> Stamped:
    """The event with its id where `contract.event_id` reads it: in a column, the record's key, or a header.

    An existing id is kept. Otherwise the id is derived from the fields in `natural_key`, or minted if that is empty. The arguments stay
    unchanged. Raises InvalidInput EVENT_ID_NOT_OURS if no id can be created (several columns, a column that is not a STRING, positions)
    and NATURAL_KEY_MISSING. Raises TypeError for natural keys of a type that `derive` refuses, ValueError for an id that is not UTF-8.
    """
    wanted = contract.event_id
    if wanted.kind == "columns":
        have = [value.get(name) for name in wanted.columns]
        if None not in have and have != [""]:  # empty text counts as missing, as for keys and headers: such events would all become one row
            return Stamped(tuple(str(each) for each in have), value, key, headers)
        (name, *more) = wanted.columns
        kinds = {column.name: column.type for column in contract.columns}
        if more or kinds.get(name, "").upper() != "STRING":
            raise _not_ours(
                contract, f"the columns {', '.join(wanted.columns)} ({', '.join(kinds.get(each, '?') for each in wanted.columns)})"
            )
        made = _made(value, natural_key)
        return Stamped((made,), {**value, name: made}, key, headers)
    if wanted.kind == "key":
        text = key.decode() if key else _made(value, natural_key)
        return Stamped((text,), value, text.encode(), headers)
    if wanted.kind == "header":
        assert wanted.header is not None
        # The last header of a name wins, as when a batch reads it.
        found = next((data for name, data in reversed(headers) if name == wanted.header), b"")
        if found:
            return Stamped((found.decode(),), value, key, headers)
        made = _made(value, natural_key)
        return Stamped((made,), value, key, [*headers, (wanted.header, made.encode())])
    raise _not_ours(contract, "the record's position")


def _made(value: Mapping[str, Any], natural_key: Sequence[str]) -> str:
    missing = [name for name in natural_key if value.get(name) is None]
    if missing:
        raise InvalidInput(
            "NATURAL_KEY_MISSING",
            f"the event lacks {', '.join(missing)}.",
            expected="every field of the natural key, or two copies of one event would get two ids.",
            remedy="complete the event, or mint its id once and keep it.",
        )
    return derive(*(value[name] for name in natural_key)) if natural_key else mint()


def _not_ours(contract: Contract, where: str) -> InvalidInput:
    return InvalidInput(
        "EVENT_ID_NOT_OURS",
        f"{contract.name} reads the event id from {where}, and the event has none there.",
        expected="one STRING column, the key or a header: `stamp` can create an id for these.",
        remedy="set the id at the event's source, or change event_id in the contract.",
    )


def _next(ms: int) -> tuple[int, int]:
    global _last
    with _lock:
        last_ms, last_tail = _last
        if ms > last_ms:
            # The highest bit stays free, so that counting up within a millisecond almost never overflows.
            _last = (ms, secrets.randbits(_TAIL_BITS - 1))
        else:
            tail = last_tail + 1 + secrets.randbelow(_STEP_END)
            _last = (last_ms, tail) if tail < _TAIL_END else (last_ms + 1, secrets.randbits(_TAIL_BITS - 1))
        return _last


def _text(ms: int, tail: int) -> str:
    bits = ms << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | tail & ((1 << 62) - 1)
    return str(uuid.UUID(int=bits))


def _encoded(part: str | int | bytes) -> tuple[int, bytes]:
    if isinstance(part, str):
        return ord("s"), part.encode("utf-8")
    if isinstance(part, bytes):
        return ord("b"), part
    if isinstance(part, int) and not isinstance(part, bool):
        return ord("i"), str(part).encode("ascii")
    raise TypeError(f"derive() got a part of type {type(part).__name__}; expected str, int or bytes.")
