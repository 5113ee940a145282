"""Why records are in quarantine, with a few samples. Their bytes come from any producer: they are cut, and shown as plain text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ingest.delta.batch_commit import BatchId
from ingest.delta.delta_sql import quoted
from ingest.observe.report.ledger_figures import iso
from ingest.observe.report.open_tables import OpenTables
from ingest.runtime.printable import printable

SAMPLES_MAX = 3
BYTES_SHOWN = 240
DETAIL_SHOWN = 300
# The highest batch number is below 2³², so this orders batches as BatchId does.
ORDER = "epoch * 4294967296 + batch"
REASONS = f"SELECT reason_code, state, count(*) AS n, max({ORDER}) AS newest FROM {{quarantine}} GROUP BY reason_code, state"
# Samples come from the newest batch of a reason, so that the engine skips the files of all others.
SAMPLES = """\
SELECT topic, `partition`, `offset`, kafka_timestamp, reason_detail, value FROM {{quarantine}}
WHERE reason_code = {reason} AND state = 'open' AND epoch = {epoch} AND batch = {number}
ORDER BY source, `partition`, `offset` LIMIT {samples}"""


@dataclass(frozen=True)
class Sample:
    """A quarantined record. `detail` and `value` are cut and printable; they are None if the contract has sensitive columns.

    `bytes` is the size of the whole value; None for a record without a value. `topic` is None if the contract names one, which it is.
    """

    topic: str | None
    partition: int
    offset: int
    kafka_timestamp: str | None
    detail: str | None
    value: str | None
    bytes: int | None


@dataclass(frozen=True)
class Reason:
    """The number of records with one reason by state, and samples of its open records."""

    code: str
    open: int
    replayed: int
    dropped: int
    samples: tuple[Sample, ...]


def quarantine_reasons(tables: OpenTables, topic: str, *, hidden: bool) -> tuple[Reason, ...]:
    """The reasons, the most frequent open one first. `topic` is the contract's (empty: it names several). `hidden`: show nothing that may
    quote a record's values. Raises Unreadable.
    """
    if "quarantine" not in tables:
        return ()
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for row in tables.ask(REASONS):
        counts.setdefault(row["reason_code"], {})[row["state"]] = row
    found = []
    for code, states in counts.items():
        number = {state: states[state]["n"] if state in states else 0 for state in ("open", "replayed", "dropped")}
        samples: list[Sample] = []
        if "open" in states:
            newest = BatchId.of(states["open"]["newest"])
            sql = SAMPLES.format(reason=quoted(code), epoch=newest.epoch, number=newest.number, samples=SAMPLES_MAX)
            samples = [_sample(row, topic, hidden) for row in tables.ask(sql)]
        found.append(Reason(code=printable(code, 80), samples=tuple(samples), **number))
    return tuple(sorted(found, key=lambda reason: (-reason.open, reason.code)))


def _sample(row: dict[str, Any], topic: str, hidden: bool) -> Sample:
    value: bytes | None = row["value"]
    time: datetime | None = row["kafka_timestamp"]
    return Sample(
        None if row["topic"] == topic else row["topic"],
        row["partition"],
        row["offset"],
        None if time is None else iso(time.timestamp()),
        None if hidden or row["reason_detail"] is None else printable(row["reason_detail"], DETAIL_SHOWN),
        None if hidden or value is None else shown(value),
        None if value is None else len(value),
    )


def shown(value: bytes) -> str:
    """The first bytes as printable text on one line; bytes that are not UTF-8 appear as `\\xff`."""
    cut = value[:BYTES_SHOWN].decode(errors="backslashreplace")
    return printable(cut) + ("…" if len(value) > BYTES_SHOWN else "")
