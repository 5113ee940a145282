"""A proof file: the verdict of one verification with the figures behind it, chained by hash to the proof before it.

`previous` is the SHA-256 of the former file's bytes. `digest` is the SHA-256 of the file's own content without that key, so damage to the
newest file shows, too. Neither stops a person who can rewrite the whole folder: for that, keep the newest hash elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest import __version__
from ingest.contract.definition import Contract
from ingest.ledger.ledger_row import LedgerRow
from ingest.runtime import numbered_files
from ingest.runtime.canonical_json import canonical_json
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from ingest.verify.count import TableRows
from ingest.verify.proof.went_back import went_back
from ingest.verify.verdict import Verified

SCHEMA = "oncelake/proof/1"
COUNTS = ("records_read", "inserted", "duplicate", "quarantined", "gap")


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
        "topic": contract.source.topic,
        "findings": [asdict(finding) for finding in seen.findings],
        "epochs": seen.epochs,
        "seeks": seen.seeks,
        "rebuilt": seen.rebuilt,
        "totals": asdict(seen.total),
        "partitions": partitions(seen.rows),
        "rows": {"target": _rows(seen.target), "quarantine": _rows(seen.quarantine)},
        "tables": {name: asdict(snapshot) for name, snapshot in seen.tables.items()},
        "kafka": kafka,
        **quality,
    }


def partitions(rows: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Each partition's range [start, end) over all batches, with its counts. `next` is where its newest batch ended."""
    found: dict[tuple[str, int], list[LedgerRow]] = {}
    for row in rows:
        found.setdefault((row.topic_id, row.partition), []).append(row)
    return [
        {
            "topic_id": topic_id,
            "partition": partition,
            "start": min(row.start_offset for row in of),
            "end": max(row.end_offset for row in of),
            "next": max(of, key=lambda row: (row.epoch, row.batch)).end_offset,
            "offsets": sum(row.end_offset - row.start_offset for row in of),
            **{name.removeprefix("records_"): sum(getattr(row, name) for row in of) for name in COUNTS},
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
        if (before := proof_of(former)) is not None and (back := next(went_back(before, proof), None)) is not None:
            raise _overtaken(numbered_files.path_of(str(folder), number - 1), back)
        written = canonical_json({**proof, "digest": digest(proof)}).encode()
        return written

    number = numbered_files.append(files, str(folder), next_proof)
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
    """A moment of UTC as proofs write it: ISO 8601, whole seconds."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def proof_of(data: bytes) -> dict[str, Any] | None:
    """The content of a proof file; None if it is none, was altered, or lacks a key that a check needs."""
    try:
        proof: dict[str, Any] = json.loads(data)
        if proof["schema"] != SCHEMA or canonical_json(proof).encode() != data or proof["digest"] != digest(proof):
            return None
        datetime.fromisoformat(proof["made_at"])
        for rows in (proof["rows"]["target"], *proof["rows"].values()):
            sum((rows["found"], rows["put"], *rows["more"].values(), *rows["less"].values()))
        list(went_back(proof, proof))  # it reads all keys that the check of the next proof reads
        return proof if {"number", "previous", "ok", "findings", "seeks"} <= proof.keys() else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
