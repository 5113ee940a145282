"""A first contract, before it is a file: what a sample or another description says about a table, and what it leaves open."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ingest.contract.parts import BESIDE_PIPELINES

# YAML parsers read these words as something other than text.
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_PERSONAL = re.compile(r"e?mail|phone|iban|card|address|birth|passport|(first|last|full)_?name", re.IGNORECASE)


@dataclass(frozen=True)
class DraftColumn:
    """A column as a contract writes it. `type` is DDL text."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    sensitive: bool = False


@dataclass(frozen=True)
class Draft:
    """One table. `event_id` is written as in a contract. `notes` say what a person must decide; they become comments of the file.

    `expectations` are expectations of GX that the source states, each {"type", "kwargs"}.
    """

    table: str
    topic: str
    columns: tuple[DraftColumn, ...]
    event_id: list[str] | str
    event_time: str | None = None
    description: str = ""
    format: str = "json"
    rules: tuple[tuple[str, str], ...] = ()
    keep_unknown: bool = False
    notes: tuple[str, ...] = ()
    expectations: tuple[dict[str, Any], ...] = ()


EXAMPLE = Draft(
    table="events",
    topic="events",
    columns=(
        DraftColumn("event_id", "STRING", nullable=False, comment="UUIDv7 as text"),
        DraftColumn("kind", "STRING", nullable=False),
        DraftColumn("amount", "DECIMAL(18,2)"),
        DraftColumn("occurred_at", "TIMESTAMP", comment="when it happened, with its zone"),
    ),
    event_id=["event_id"],
    event_time="occurred_at",
    description="One row an event.",
    rules=(("amount_not_negative", "amount IS NULL OR amount >= 0"),),
)


def identifier(text: str) -> str:
    """`text` as a name that a contract allows for a pipeline, table or rule: lower case, digits and _."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"[^a-z0-9]+", "_", snake).strip("_") or "events"
    name = name if name[0].isalpha() else f"t_{name}"
    return f"{name}_events" if name in BESIDE_PIPELINES else name


def looks_personal(name: str) -> bool:
    """Whether a column's name suggests personal data, which `ingest check` must not show."""
    return _PERSONAL.search(name) is not None


def scalar(text: str) -> str:
    """A text as a YAML scalar, with quotes where YAML would read it as something else."""
    plain = re.fullmatch(r"[A-Za-z][\w /.()-]*(?<! )", text) is not None and text.lower() not in _NOT_TEXT
    return text if plain else json.dumps(text, ensure_ascii=False)
