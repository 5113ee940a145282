"""One place where an event id was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Place = Literal["outbox", "kafka", "sink", "dead letter", "effect", "lake", "quarantine"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """`name` says which one of its kind: the topic, the sink, the effect, the table. `summary` is one line for a terminal."""

    place: Place
    name: str
    summary: str
    details: dict[str, Any] = field(default_factory=dict)
    history: tuple[str, ...] = ()
