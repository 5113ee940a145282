"""The guarantees of a batch (docs/reference/guarantees.md) as a small model: dictionaries, one record after another."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.contract.definition import Contract
from ingest.kafka.offsets import shown
from tests.unit.batch.local_desk import PLACES, Record

Position = tuple[int, int]
CONFLICT, BROKEN, POISON = "conflicting_duplicate", "broken_rule", "malformed_json"

# By the type of an event id: the value of id k in JSON, and its text in the quarantine. Long texts have bounds that are cut; times differ
# within a millisecond, to which other engines cut bounds.
KINDS: dict[str, tuple[Callable[[int], Any], Callable[[int], str]]] = {
    "BIGINT": (lambda k: k, str),
    "STRING": (lambda k: f"{'x' * 40}\x0b{k}", lambda k: f"{'x' * 40}\x0b{k}"),
    "DECIMAL(20,7)": (str, lambda k: f"{k}.0000000" if k else "0E-7"),
    "DATE": (lambda k: f"2026-01-0{k + 1}", lambda k: f"2026-01-0{k + 1}"),
    "TIMESTAMP": (lambda k: f"2026-01-01T00:00:00.00000{k}Z", lambda k: f"2026-01-01 00:00:00{f'.00000{k}' if k else ''}"),
    "BINARY": (lambda k: base64.b64encode(b"k%d" % k).decode(), lambda k: f"k{k}"),
}


def differs_from(at: Position) -> str:
    """The detail of a conflict with the record at this position."""
    return f"differs from partition {shown(PLACES[at[0]])} offset {at[1]}"


@dataclass(frozen=True)
class Event:
    """What a producer sends: event `id` of a shop with the payload `n`, or text that is no event. `task` is the task that reads it."""

    id: int
    shop: str
    n: int | None
    poison: bool = False
    task: int = 0

    def value(self, kind: str) -> bytes:
        """The record's bytes."""
        return b"{" if self.poison else json.dumps({"id": KINDS[kind][0](self.id), "shop": self.shop, "n": self.n}).encode()


@dataclass(frozen=True)
class Shape:
    """A contract of the tests: the type of the id, whether the shop is part of it, the layout, and where payloads are compared."""

    kind: str = "BIGINT"
    composite: bool = False
    partitioned: bool = False
    conflicts: str = "batch"
    least: int = 0

    def contract(self) -> Contract:
        """The contract. Its rule: `n` is at least `least`."""
        columns = [{"name": "id", "type": self.kind, "nullable": False}, {"name": "shop", "type": "STRING", "nullable": False}]
        document: dict[str, Any] = {"pipeline": "t", "table": "events", "source": {"topic": "t", "format": "json"}}
        document |= {"columns": [*columns, {"name": "n", "type": "INT"}], "event_id": ["shop", "id"] if self.composite else ["id"]}
        document |= {"conflicts": self.conflicts, "rules": [{"name": "least", "check": f"n >= {self.least}"}]}
        document |= {"quarantine": {"max_share": 1.0}}
        return Contract.model_validate(document | ({"layout": {"partition_by": ["shop"]}} if self.partitioned else {}))

    def id_of(self, event: Event) -> Any:
        return (event.shop, event.id) if self.composite else event.id

    def id_text(self, event: Event) -> str | None:
        """The event id in the quarantine."""
        if event.poison:
            return None
        text = KINDS[self.kind][1](event.id)
        return f'["{event.shop}","{text}"]'.replace("\x0b", "\\u000B") if self.composite else text


@dataclass
class Model:
    """The tables. `rows` are events by position, `refused` the quarantine: reason, detail and state by position."""

    rows: dict[Position, Event] = field(default_factory=dict)
    refused: dict[Position, tuple[str, str | None, str]] = field(default_factory=dict)
    outcomes: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)

    def batch(self, shape: Shape, read: Sequence[tuple[Position, Event]]) -> None:
        """A committed batch. Each record that is read is new, there already, a later copy of another, or refused for the first time."""
        there = {shape.id_of(event): at for at, event in sorted(self.rows.items(), reverse=True)}
        first: dict[Any, tuple[Position, Event]] = {}
        added, duplicate, present = set[Position](), set[Position](), set[Position]()
        wrong: dict[Position, tuple[str, str | None]] = {}
        for at, event in sorted(read, key=lambda each: each[0]):
            id, payload = shape.id_of(event), (event.id, event.shop, event.n)
            if event.poison:
                wrong[at] = POISON, None
            elif event.n is None or event.n < shape.least:
                wrong[at] = BROKEN, "least"
            elif shape.conflicts == "table" and id in there:
                row = self.rows[there[id]]
                if at == there[id] or payload == (row.id, row.shop, row.n):
                    present.add(at)
                else:
                    wrong[at] = CONFLICT, differs_from(there[id])
            elif id not in first:
                first[id] = at, event
                (present if id in there else added).add(at)
            else:
                winner_at, winner = first[id]
                if payload == (winner.id, winner.shop, winner.n):
                    duplicate.add(at)
                else:
                    wrong[at] = CONFLICT, differs_from(winner_at)
        # Records that are rows stay rows.
        present |= wrong.keys() & self.rows.keys()
        wrong = {at: why for at, why in wrong.items() if at not in self.rows}
        new = wrong.keys() - self.refused.keys()
        present |= wrong.keys() - new
        assert sorted([*added, *present, *duplicate, *new]) == sorted(at for at, _ in read), "each record has one outcome"

        self.refused |= {at: (*wrong[at], "open") for at in new}
        for at in wrong.keys() - new:
            self.refused[at] = *self.refused[at][:2], "open"
        events = dict(read)
        self.rows |= {at: events[at] for at in added}
        for at in added & self.refused.keys():
            self.refused[at] = *self.refused[at][:2], "replayed"
        outcomes = (dict(read), added, present, duplicate, new)
        self.outcomes = {p: tuple(sum(p == at[0] for at in positions) for positions in outcomes) for p in {p for (p, _), _ in read}}  # type: ignore[misc]


def record(shape: Shape, at: Position, event: Event) -> Record:
    """The record of an event at a position. Its key is not part of the event."""
    return Record(*at, event.value(shape.kind), b"key %d" % at[1])
