"""A proof file: the verdict of one verification with the figures behind it, chained by hash to the proof before it.

`previous` is the SHA-256 of the former file's bytes. `digest` is the SHA-256 of the file's own content without that key, so damage to the
newest file shows, too. Neither is a signature: who can write the whole folder can write another chain. Keep the newest hash elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ingest import __version__
from ingest.contract.definition import Contract
from ingest.contract.parts import NAME
from ingest.delta.posting import Posting
from ingest.kafka.offsets import OffsetRange
from ingest.ledger.books import Books
from ingest.runtime import numbered_files
from ingest.runtime.canonical_json import canonical_json, read_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import NO_OTHERS, LocalFiles
from ingest.runtime.places import Places
from ingest.verify.count import TableRows
from ingest.verify.proof.went_back import went_back
from ingest.verify.verdict import Verified

SCHEMA = "oncelake/proof/2"


class Counts(msgspec.Struct, frozen=True):
    """Sums over batches, none of which ever shrinks."""

    offsets: int
    read: int
    inserted: int
    present: int
    duplicate: int
    quarantined: int
    gap: int


class Covered(Counts, frozen=True):
    """A partition's range [start, end) over all batches, and where its newest batch ended."""

    topic_id: str
    partition: int
    start: int
    end: int
    next: int


class ProvenRows(msgspec.Struct, frozen=True):
    """The rows of a table. Their balance: found = put + more - less."""

    found: int
    put: int
    more: dict[str, int]
    less: dict[str, int]


class BothRows(msgspec.Struct, frozen=True):
    """The rows of target and quarantine."""

    target: ProvenRows
    quarantine: ProvenRows


class DeltaId(msgspec.Struct, frozen=True):
    """Which Delta table was looked at."""

    table_id: str


class Proof(msgspec.Struct, frozen=True):
    """What the checks read of a proof file. Anybody may have written one: only the types are certain, and its text is not ours."""

    schema: Literal["oncelake/proof/2"]
    table: Annotated[str, msgspec.Meta(pattern=rf"^{NAME}\.{NAME}\Z")]
    ok: bool
    findings: list[dict[str, Any]]
    seeks: int
    totals: Counts
    partitions: list[Covered]
    rows: BothRows
    tables: dict[str, DeltaId]
    made_at: Annotated[datetime, msgspec.Meta(tz=True)]
    number: int
    previous: str | None
    digest: str
    rebuilt: int = 0


def content(contract: Contract, places: Places, seen: Verified, quality: Mapping[str, Any]) -> dict[str, Any]:
    """What a proof says of a verified table; `quality` is of `quality_proof`. `write_proof` adds number, time and hashes."""
    kafka = asdict(seen.kafka) if seen.kafka else None
    if kafka is not None:
        del kafka["findings"]
    return {
        "schema": SCHEMA,
        "table": places.name,
        "ok": not seen.findings,
        "tool_version": __version__,
        "contract_hash": contract.hash,
        "topic": contract.source.document,
        "findings": [asdict(finding) for finding in seen.findings],
        "epochs": seen.epochs,
        "seeks": seen.seeks,
        "rebuilt": seen.rebuilt,
        "totals": asdict(seen.total),
        "partitions": partitions(seen.books),
        "rows": {"target": _rows(seen.target), "quarantine": _rows(seen.quarantine)},
        "tables": {name: asdict(snapshot) for name, snapshot in seen.tables.items()},
        "kafka": kafka,
        **quality,
    }


def partitions(books: Books) -> list[dict[str, Any]]:
    """Each partition's range [start, end) over all batches, with its counts. `next` is where its newest batch ended."""
    found: dict[tuple[str, int], list[tuple[Posting, OffsetRange]]] = {}
    for line in books.batches:
        if (at := line.posting.range) is not None:
            found.setdefault((line.topic.id or line.topic.name, at.partition), []).append((line.posting, at))
    return [
        {
            "topic_id": topic_id,
            "partition": partition,
            "start": min(at.start for _, at in of),
            "end": max(at.end for _, at in of),
            "next": of[-1][1].end,
            "offsets": sum(len(at) for _, at in of),
            "read": sum(each.read for each, _ in of),
            "inserted": sum(each.inserted for each, _ in of),
            "present": sum(each.present or 0 for each, _ in of),
            "duplicate": sum(each.duplicate for each, _ in of),
            "quarantined": sum(each.quarantine.rows for each, _ in of),
            "gap": sum(each.gap for each, _ in of),
        }
        for (topic_id, partition), of in sorted(found.items())
    ]


def write_proof(folder: Path, given: Mapping[str, Any]) -> tuple[Path, str]:
    """Write the next proof of a chain; returns its path and the SHA-256 of its bytes. Two at once get two numbers.

    Raises InvalidInput PROOF_OVERTAKEN rather than write a proof that would break the chain: the verification behind `given` may have
    begun before that of the newest proof, and have taken longer.
    """
    files = LocalFiles()
    written = b""

    def next_proof(number: int, former: bytes) -> bytes:
        nonlocal written
        proof = {**given, "made_at": utc(datetime.now(UTC)), "number": number, "previous": sha256(former) if former else None}
        proof["digest"] = digest(proof)
        before, after = proof_of(former), msgspec.convert(proof, Proof)
        if before is not None and (back := next(went_back(before, after), None)) is not None:
            raise _overtaken(numbered_files.path_of(str(folder), number - 1), back)
        written = canonical_json(proof).encode()
        return written

    number = numbered_files.append(files, str(folder), next_proof, NO_OTHERS)
    assert number is not None
    return Path(numbered_files.path_of(str(folder), number)), sha256(written)


def _overtaken(former: str, back: str) -> InvalidInput:
    return InvalidInput(
        "PROOF_OVERTAKEN",
        f"this proof would not go on from {former}: {back}.",
        expected="a verification that began after the newest proof, of the same tables.",
        remedy="another proof was made meanwhile: run again. If it stays, the table was recreated or restored: move the folder of its "
        "proofs away, and the next proof begins a new chain.",
    )


def digest(proof: Mapping[str, Any]) -> str:
    """The SHA-256 of a proof without its key `digest`."""
    return sha256(canonical_json({key: value for key, value in proof.items() if key != "digest"}).encode())


def sha256(data: bytes) -> str:
    """The SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _rows(held: TableRows) -> dict[str, Any]:
    """found = put + more - less."""
    return {"found": held.found, "put": held.put, "more": held.more, "less": held.less}


def utc(moment: datetime) -> str:
    """A moment as proofs write it: ISO 8601 in UTC, whole seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def proof_of(data: bytes) -> Proof | None:
    """The proof in a file; None if it is none, was altered, or lacks what a check needs."""
    try:
        found = msgspec.json.decode(data, type=Proof)
        plain = read_json(data)
        genuine = canonical_json(plain).encode() == data and found.digest == digest(plain)
    except (ValueError, RecursionError):
        return None
    return found if genuine else None
