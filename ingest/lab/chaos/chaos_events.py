"""Events for any contract of format json: new ids, with bodies from a pool that is made once.

Bodies come from a samples file if there is one, else from the shop (`ingest.lab.samples.shop`) if it has the contract's columns,
else from the column types. An event joins two pieces of text, which is fast enough for tens of thousands of events per second.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Final, assert_never

from ingest.contract.definition import Column, Contract
from ingest.contract.sql_type import Array, Atomic, Decimal, Map, SqlType, Struct
from ingest.lab.samples.poison_records import POISON_KINDS, Poison, PoisonKind, poison
from ingest.lab.samples.shop import ORDERS, SampleEvent, Shop
from ingest.runtime.errors import InvalidInput

POOL: Final = 2048
# One event in this many is one that another topic of its table has got, too.
COPY_EVERY: Final = 40
SCATTER: Final = 0x9E3779B1
PART_SEPARATOR: Final = "\x1f"
# By column type: the number of ids that one source can use before they collide with the next source's.
ROOM: Final = {"INT": 10**7, "BIGINT": 10**10}
INT_MAX: Final = {"TINYINT": 127, "SMALLINT": 32_767, "INT": 2**31 - 1, "BIGINT": 2**63 - 1}
WORDS: Final = ("", "a", "Zürich", "Łódź", 'in "quotes"', "back\\slash", "line\nend", "🌻", "Cafe\u0301", "null", "0")
COMPARED: Final = ("STRING", "TINYINT", "SMALLINT", "INT", "BIGINT", "BOOLEAN", "DOUBLE", "TIMESTAMP", "TIMESTAMP_NTZ")


@dataclass(frozen=True)
class Bodies:
    """A contract's event bodies without the id columns, as JSON text without braces; `origin` names their source.

    `topics` get the events: with several, some events get into two of them.
    """

    contract: Contract
    texts: tuple[str, ...]
    origin: str
    topics: tuple[str, ...]
    shop_topic: str | None = None


def refuse_unfit(contract: Contract) -> None:
    """Raise InvalidInput CHAOS_CONTRACT if the oracle cannot identify the contract's rows by columns of the event."""
    columns = {column.name: column for column in contract.columns}
    reason = ""
    if contract.source.format != "json" or contract.event_id.kind != "columns":
        reason = f"format {contract.source.format} with an event id of kind {contract.event_id.kind}"
    elif not any(_room(columns[name].sql_type) for name in contract.event_id.columns):
        reason = "an event id without a column that could tell millions of events apart"
    elif bad := [n for n in contract.event_id.columns if columns[n].sql_type.kind in ("TIMESTAMP", "BINARY")]:
        reason = f"an event id that contains {', '.join(bad)}, whose text in JSON differs from its text in the table"
    if reason:
        raise InvalidInput(
            "CHAOS_CONTRACT",
            f"{contract.name} has {reason}.",
            expected="format json, and an event id of columns, one of them a STRING, INT, BIGINT or DECIMAL of 12 digits before the point.",
            remedy="name other tables: ingest chaos TABLE …",
        )


def bodies(contract: Contract, seed: str, samples: Path | None, topics: Sequence[str] = ()) -> Bodies:
    """The pool of bodies for a contract, for these topics (default: those that it names, else its own name).

    Raises InvalidInput CHAOS_SAMPLE for a samples file that does not fit it.
    """
    ids, topics = set(contract.event_id.columns), (*topics,) or contract.source.names or (contract.name,)
    file = samples / f"{contract.table}.jsonl" if samples else None
    if file is not None and file.exists():
        return Bodies(contract, tuple(_body(event, ids) for event in _samples(file, contract, ids)), f"samples of {file}", topics)
    shop = Shop(f"bodies/{seed}")
    for topic, count, made in ((ORDERS, POOL, shop.orders(POOL)), ("payments", POOL, (shop.payment() for _ in range(POOL)))):
        events = [json.loads(event.value, parse_float=Number) for event in islice(made, count)]
        known = set().union(*events[:50])
        if {column.name for column in contract.columns} <= known:
            return Bodies(contract, tuple(_body(event, ids) for event in events), f"the shop's {topic}", topics, topic)
    random = Random(f"bodies/{seed}/{contract.name}")
    return Bodies(contract, tuple(_body(_event(contract, random), ids) for _ in range(POOL)), "the column types", topics)


def compared_columns(contract: Contract) -> tuple[str, ...]:
    """The columns, without the event id, whose values the oracle can compare with the produced ones."""
    found = [c.name for c in contract.columns if c.sql_type.kind in (*COMPARED, "DECIMAL") and c.name not in contract.event_id.columns]
    return tuple(found)


def refused_kinds(contract: Contract) -> frozenset[str]:
    """Our kinds of broken events that no contract accepts although their id can be read."""
    return frozenset(name for name, id_readable, _ in _broken_kinds(contract) if id_readable)


class Events:
    """A `SampleSource` (`ingest.lab.samples.mix`) over several contracts; `name` is a writer's number or `aborted/<number>`.

    Different names never give the same id. The same name gives the same ids again, like an upstream system that replays.
    """

    def __init__(self, pools: Sequence[Bodies], seed: str, name: str) -> None:
        writer = int(name.removeprefix("aborted/"))
        slot = 2 * writer + name.startswith("aborted/")
        self._makers = [_Maker(pool, slot) for pool in pools]
        self._random = Random(f"events/{seed}/{name}")
        self._shop = Shop(f"poison/{seed}/{name}")

    def events(self, count: int) -> Iterator[SampleEvent]:
        makers, draw = self._makers, self._random.getrandbits
        single = makers[0] if len(makers) == 1 else None
        for _ in range(count):
            bits = draw(32)
            yield (single or makers[bits % len(makers)]).event(bits >> 8)

    def poison(self, number: int) -> Poison:
        maker = self._makers[number % len(self._makers)]
        number //= len(self._makers)
        kinds = [kind for kind in POISON_KINDS if kind.topic == maker.pool.shop_topic]
        if (*maker.pool.contract.event_id.columns,) != (f"{maker.pool.shop_topic}"[:-1] + "_id",):
            kinds = []  # the shop's poison has its id in the shop's own id column
        if kinds and number % 2:
            kind: PoisonKind = kinds[number // 2 % len(kinds)]
            return poison(kind, self._shop)._replace(topic=maker.pool.topics[number % len(maker.pool.topics)])
        return maker.broken(number // 2 if kinds else number)


class _Maker:
    def __init__(self, pool: Bodies, slot: int) -> None:
        self.pool = pool
        self._made = 0
        self._last: SampleEvent | None = None
        columns = {column.name: column for column in pool.contract.columns}
        self._ids = [(name, _id_maker(columns[name], slot)) for name in pool.contract.event_id.columns]
        self._bodies = pool.texts
        self._broken = _broken_kinds(pool.contract)

    def event(self, pick: int) -> SampleEvent:
        topics = self.pool.topics
        if self._last is not None and len(topics) > 1 and not pick % COPY_EVERY:
            copy = self._last._replace(topic=topics[(topics.index(self._last.topic) + 1) % len(topics)])
            self._last = None
            return copy
        self._made += 1
        texts = [(name, make(self._made)) for name, make in self._ids]
        fields = ",".join(f'"{name}":{json_text}' for name, (_, json_text) in texts)
        event_id = PART_SEPARATOR.join(text for _, (text, _) in texts)
        body = self._bodies[pick % len(self._bodies)]
        value = f"{{{fields},{body}}}" if body else f"{{{fields}}}"
        self._last = SampleEvent(topics[pick // POOL % len(topics)], event_id, event_id.encode(), value.encode())
        return self._last

    def broken(self, number: int) -> Poison:
        """One of our events, broken by one change."""
        self._last = None  # no copy
        event = self.event(zlib.crc32(str(number).encode()))
        self._last = None
        name, id_readable, change = self._broken[number % len(self._broken)]
        return Poison(name, event.topic, event.event_id if id_readable else None, event.key, change(event.value))


Change = Callable[[bytes], bytes | None]


def _broken_kinds(contract: Contract) -> list[tuple[str, bool, Change]]:
    kinds: list[tuple[str, bool, Change]] = [
        ("tombstone", False, lambda value: None),
        ("empty_value", False, lambda value: b""),
        ("json_number", False, lambda value: b"42"),
        ("json_array", False, lambda value: b"[1]"),
        ("json_null", False, lambda value: b"null"),
        ("truncated_json", False, lambda value: value[: len(value) // 2]),
        ("not_utf8", False, lambda value: value[:-1] + b',"x":"\xff\xfe"}'),
        ("two_objects", False, lambda value: value + value),
        ("trailing_garbage", False, lambda value: value + b" oops"),
        ("id_null", False, partial(_changed, contract.event_id.columns[0], None)),
    ]
    typed = [c for c in contract.columns if c.sql_type.kind not in ("STRING", "STRUCT", "MAP") and c.name not in contract.event_id.columns]
    for column in typed[:3]:
        kinds.append((f"object_for_{column.name}", True, partial(_changed, column.name, {"value": 1})))
    return kinds


def _changed(column: str, put: object, value: bytes) -> bytes:
    return _json({**json.loads(value, parse_float=Number), column: put}).encode()


def _id_maker(column: Column, slot: int) -> Callable[[int], tuple[str, str]]:
    """A function from the event's count to this id column's text and its JSON text."""
    room = _room(column.sql_type)
    kind = column.sql_type.kind
    if kind == "STRING":
        # Every other id rises, as UUIDv7 do; the rest is scattered, as UUIDv4 are.
        return lambda n: (text := f"{f'{n * SCATTER % 2**32:08x}-' if n % 2 else ''}{slot:04d}-{n:010d}", f'"{text}"')
    if room:
        base = slot * room
        return lambda n: (text := str(base + n), text)
    values = cycle([_value(column.sql_type, Random(number)) for number in range(64)])

    def from_type(_: int) -> tuple[str, str]:
        value = next(values)
        return (str(value) if not isinstance(value, Number) else f"{value.normalize():f}"), _json(value)

    return from_type


def _room(sql_type: SqlType) -> int:
    if isinstance(sql_type, Decimal):
        return 10 ** (sql_type.precision - sql_type.scale - 4) if sql_type.precision - sql_type.scale >= 12 else 0
    return {"STRING": 1, **ROOM}.get(sql_type.kind, 0)


def _samples(file: Path, contract: Contract, ids: set[str]) -> list[Mapping[str, Any]]:
    events: list[Mapping[str, Any]] = []
    needed = {column.name for column in contract.columns if not column.nullable} - ids
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line, parse_float=Number)
        except ValueError as error:
            raise _invalid_sample(f"line {number} of {file} is not JSON: {error}") from error
        missing = sorted(needed - event.keys()) if isinstance(event, dict) else ["an object"]
        if missing:
            raise _invalid_sample(f"line {number} of {file} lacks {', '.join(missing)}")
        events.append(event)
    if not events:
        raise _invalid_sample(f"{file} contains no events")
    return events


def _invalid_sample(found: str) -> InvalidInput:
    return InvalidInput(
        "CHAOS_SAMPLE",
        f"{found}.",
        expected="one JSON object per line, with a value for each column that is not nullable; ids are replaced.",
        remedy="correct the file.",
    )


def _body(event: Mapping[str, Any], ids: set[str]) -> str:
    return _json({name: value for name, value in event.items() if name not in ids})[1:-1]


def _json(value: Any) -> str:
    """JSON text in which decimals keep their digits; json.dumps cannot do that."""
    if isinstance(value, Number):
        return f"{value:f}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(str(name))}:{_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _event(contract: Contract, random: Random) -> dict[str, Any]:
    """An event made from the column types; a column that a rule names is never null."""
    ruled = " ".join(rule.check for rule in contract.rules)
    event: dict[str, Any] = {}
    for column in contract.columns:
        null = column.nullable and column.name not in ruled and random.random() < 0.1
        event[column.name] = None if null else _value(column.sql_type, random)
    return event


def _value(sql_type: SqlType, random: Random) -> Any:
    match sql_type:
        case Atomic():
            return _atomic(sql_type.kind, random)
        case Decimal():
            digits = random.randrange(10 ** min(sql_type.precision, 15))
            return Number(digits).scaleb(-sql_type.scale)
        case Array():
            return [_value(sql_type.element, random) for _ in range(random.randint(1, 3))]
        case Map():
            return {f"k{number}": _value(sql_type.value, random) for number in range(random.randint(0, 2))}
        case Struct():
            return {field.name: _value(field.type, random) for field in sql_type.fields}
        case _:
            assert_never(sql_type)


def _atomic(kind: str, random: Random) -> Any:
    day = f"2025-{random.randint(1, 12):02d}-{random.randint(1, 28):02d}"
    time = f"{day}T{random.randint(0, 23):02d}:{random.randint(0, 59):02d}:00.{random.randrange(1000):03d}"
    if kind in INT_MAX:
        return random.randint(0, INT_MAX[kind])
    made: dict[str, Any] = {
        "BOOLEAN": random.random() < 0.5,
        "FLOAT": random.randrange(4000) / 4,
        "DOUBLE": random.random(),
        "STRING": random.choice(WORDS) + str(random.randrange(1000)),
        "BINARY": "AAEC/w==",
        "DATE": day,
        "TIMESTAMP": f"{time}Z",
        "TIMESTAMP_NTZ": time,
    }
    return made[kind]
