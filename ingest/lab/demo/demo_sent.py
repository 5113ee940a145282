"""What a demo's producer sent, and what a table made of it: ids counted one by one, nothing taken from a pipeline's own word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.lab.oracle.oracle_tables import select
from ingest.lab.samples.poison_records import POISON_KINDS

BY_CONTRACT = frozenset(kind.name for kind in POISON_KINDS if kind.by_contract)


@dataclass
class Sent:
    """What the producer sent to one topic, by its manifest.

    `ids` are of committed events, `retries` counts further copies of them, `aborted` are ids of aborted transactions,
    `poison` the kind of each broken record by its (partition, offset), `poison_ids` the ids that some of these carry.
    """

    ids: set[str] = field(default_factory=set)
    retries: int = 0
    aborted: set[str] = field(default_factory=set)
    poison: dict[tuple[int, int], str] = field(default_factory=dict)
    poison_ids: dict[str, str] = field(default_factory=dict)


def read_manifest(path: Path) -> dict[str, Sent]:
    """What was sent, by topic (the manifest's lines are described in `ingest.lab.samples.manifest`)."""
    sent: dict[str, Sent] = {}
    begun: dict[str, Any] = {}
    with path.open(encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if line["event"] == "sample":
                sent = {topic: Sent() for topic in line["topics"]}
            elif line["event"] == "begin":
                begun[f"{line['txn']}"] = line
            elif line["event"] in ("committed", "aborted"):
                _end(sent, begun.pop(f"{line['txn']}"), line)
    for one in sent.values():
        one.aborted -= one.ids  # an attempt that failed and was sent again
    return sent


def _end(sent: dict[str, Sent], begin: dict[str, Any], end: dict[str, Any]) -> None:
    for topic, lists in begin["topics"].items():
        one = sent[topic]
        if end["event"] == "aborted":
            one.aborted.update(lists["ids"])
            continue
        known = len(one.ids)
        one.ids.update(lists["ids"])
        one.retries += len(lists["ids"]) - (len(one.ids) - known)
    if end["event"] == "committed":
        for broken in begin["poison"]:
            if broken["id"] is not None:
                sent[broken["topic"]].poison_ids[broken["id"]] = broken["kind"]
        for kind, topic, partition, offset in end["poison_at"]:
            sent[topic].poison[partition, offset] = kind


@dataclass(frozen=True)
class Outcome:
    """What one pipeline made of one topic.

    `rows` = distinct committed ids + `duplicates` + `aborted` + `poison_rows` + `allowed`. `duplicates` are rows beyond the
    first of a committed id; `lost` committed ids that have no row; `aborted` rows of aborted transactions; `poison_rows` rows
    made of broken records (of no id, of a broken record's id, or of an id that no whole record carries), but for the `allowed`
    ones of kinds that a contract may let in; `null_ids` are those without an id. `quarantined` broken records, and `wronged`
    good ones, stand in quarantine; `vanished` broken records left no trace.
    """

    rows: int
    distinct_ids: int
    duplicates: int
    lost: int
    aborted: int
    poison_rows: int
    null_ids: int
    allowed: int
    allowed_kinds: tuple[str, ...]
    quarantined: int
    wronged: int
    vanished: int

    @property
    def exact(self) -> bool:
        """Whether every committed event is one row, and nothing else is."""
        return not any((self.duplicates, self.lost, self.aborted, self.poison_rows, self.wronged, self.vanished))


def measure(sent: Sent, rows: Counter[str | None], quarantine: Iterable[tuple[int, int]]) -> Outcome:
    """Compare the ids in a table (None for NULL) and the positions in its quarantine with what was sent."""
    positions = set(quarantine)
    null_ids = rows.pop(None, 0)
    good = sum(count for id, count in rows.items() if id in sent.ids)
    aborted = sum(count for id, count in rows.items() if id in sent.aborted)
    present = len(sent.ids & rows.keys())
    broken_ids = rows.keys() - sent.ids - sent.aborted
    allowed = [kind for id in broken_ids if (kind := sent.poison_ids.get(str(id))) in BY_CONTRACT]
    quarantined = len(positions & sent.poison.keys())
    return Outcome(
        rows=rows.total() + null_ids,
        distinct_ids=len(rows),
        duplicates=good - present,
        lost=len(sent.ids) - present,
        aborted=aborted,
        poison_rows=rows.total() - good - aborted - len(allowed) + null_ids,
        null_ids=null_ids,
        allowed=len(allowed),
        allowed_kinds=tuple(sorted(set(allowed))),
        quarantined=quarantined,
        wronged=len(positions) - quarantined,
        vanished=max(0, len(sent.poison) - quarantined - len(broken_ids) - null_ids),
    )


def ids_of(table: Path, column: str) -> Counter[str | None]:
    """How often each id stands in a Delta table, read without Spark; empty where there is no table."""
    return Counter(row[0] for row in select(table, [column]))


def quarantined_of(table: Path) -> list[tuple[int, int]]:
    """The (partition, offset) of each record in a quarantine."""
    return [(int(row[0]), int(row[1])) for row in select(table, ["partition", "offset"])]
