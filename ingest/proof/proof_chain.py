"""A chain of proof files, checked without the lake: nothing altered, missing or reordered, and each proof goes on from the former."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.proof.proof_file import digest, proof_of, sha256
from ingest.runtime import numbered_files
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.verify.balance import Finding

# These counts of the ledger never shrink, in total and in each partition.
GROWING = ("offsets", "read", "inserted", "duplicate", "quarantined", "gap")


@dataclass(frozen=True)
class ProofFile:
    """A file as found; `proof` is None if it is no proof in canonical form."""

    path: Path
    number: int
    sha256: str
    proof: Mapping[str, Any] | None


@dataclass(frozen=True)
class Chain:
    """The proofs of one folder, in order, and what is wrong with them."""

    folder: Path
    files: tuple[ProofFile, ...]
    findings: tuple[Finding, ...]

    @property
    def table(self) -> str:
        """`pipeline.table`, as the newest readable proof says; else the folder."""
        return next((each.proof["table"] for each in reversed(self.files) if each.proof), str(self.folder))


def chains(place: Path) -> list[Chain]:
    """The chains at a place: a folder with all below it, or a proof file with those before it. Raises InvalidInput PROOF_NOT_FOUND."""
    if place.is_file() and numbered_files.NAME.fullmatch(place.name):
        return [read_chain(place.parent, int(place.stem))]
    folders = {path.parent for path in place.rglob("*.json") if numbered_files.NAME.fullmatch(path.name)}
    if not folders:
        raise InvalidInput(
            "PROOF_NOT_FOUND",
            f"{place} is no proof file and contains none.",
            expected="a file such as 000001.json, or a folder of them.",
            remedy="name the right place; `ingest proof make` writes proofs.",
        )
    return [read_chain(folder) for folder in sorted(folders)]


def read_chain(folder: Path, last: int | None = None) -> Chain:
    """The proofs of a folder up to number `last` (None: all), checked."""
    found = []
    for number in numbered_files.numbers(LocalFiles(), str(folder)):
        if last is None or number <= last:
            path = Path(numbered_files.path_of(str(folder), number))
            found.append(ProofFile(path, number, sha256(data := path.read_bytes()), proof_of(data)))
    return Chain(folder, tuple(found), tuple(_findings(folder, found)))


def head_finding(chain: Chain, head: str) -> Finding | None:
    """PROOF_HEAD if no proof of the chain has this hash. A proof that is not the newest may have it: the chain has grown since."""
    if any(each.sha256 == head.lower() for each in chain.files):
        return None
    return Finding(
        "PROOF_HEAD", f"no proof in {chain.folder} has the SHA-256 {head}: the chain is not the one that this hash was taken from"
    )


def _findings(folder: Path, files: Sequence[ProofFile]) -> Iterator[Finding]:
    for number in sorted(set(range(1, files[-1].number)) - {each.number for each in files}):
        yield Finding("PROOF_MISSING", f"{numbered_files.path_of(str(folder), number)} is missing")
    before: ProofFile | None = None
    for each in files:
        own = list(_own(each))
        yield from own
        if each.proof is not None and not own:
            yield from _chained(before, each)
        before = each


def _own(each: ProofFile) -> Iterator[Finding]:
    """What is wrong with a file by itself."""
    if each.proof is None or each.proof.get("digest") != digest(each.proof):
        yield Finding("PROOF_ALTERED", f"{each.path} was altered: its content does not match its own digest")
        return
    proof = each.proof
    if proof["number"] != each.number:
        yield Finding("PROOF_ALTERED", f"{each.path} is proof {proof['number']}, so somebody renamed it")
    for table, rows in proof["rows"].items():
        if rows["found"] != (sum := rows["put"] + _sum(rows["more"]) - _sum(rows["less"])):
            yield Finding("PROOF_WRONG", f"{each.path}: the {table} has {rows['found']} rows, but its figures add up to {sum}")
    if proof["ok"] != (not proof["findings"]):
        yield Finding("PROOF_WRONG", f"{each.path}: its verdict is {proof['ok']}, but it names {len(proof['findings'])} findings")


def _chained(before: ProofFile | None, each: ProofFile) -> Iterator[Finding]:
    """How a proof goes on from the one before it. After a missing or altered file there is nothing to compare with."""
    assert each.proof is not None
    if before is None or before.number != each.number - 1:
        if each.number == 1 and each.proof["previous"] is not None:
            yield Finding("PROOF_BROKEN", f"{each.path} is the first proof, but names one before it")
        return
    if each.proof["previous"] != before.sha256:
        if before.proof is not None and before.proof.get("digest") == digest(before.proof):
            yield Finding("PROOF_BROKEN", f"{before.path} is not the file that {each.path.name} goes on from: one of them was replaced")
        return
    if before.proof is not None:
        yield from (Finding("PROOF_BACK", f"{each.path}: {what}") for what in _went_back(before.proof, each.proof))


def _went_back(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["table"] != after["table"]:
        yield f"it is about {after['table']}, the proof before it about {before['table']}"
    if after["made_at"] < before["made_at"]:
        yield f"it was made at {after['made_at']}, before the former one ({before['made_at']})"
    for name, table in before["tables"].items():
        if after["tables"][name]["table_id"] != table["table_id"]:
            yield f"the {name} is another Delta table (id {after['tables'][name]['table_id']}, was {table['table_id']})"
    if after.get("rebuilt", 0) > before.get("rebuilt", 0):
        return  # a rebuild begins the counts anew
    yield from (
        f"{name} was {before['totals'][name]}, and is {after['totals'][name]}" for name in _shrunk(before["totals"], after["totals"])
    )
    now = {(each["topic_id"], each["partition"]): each for each in after["partitions"]}
    for former in before["partitions"]:
        where = f"partition {former['partition']} of topic id {former['topic_id']}"
        new = now.get((former["topic_id"], former["partition"]))
        if new is None:
            yield f"{where} is no longer covered"
            continue
        if new["start"] > former["start"] or new["end"] < former["end"]:
            yield f"{where} covered [{former['start']}, {former['end']}), and covers [{new['start']}, {new['end']})"
        if new["next"] < former["next"] and after["seeks"] <= before["seeks"]:
            yield f"{where} had been read up to {former['next']}, is at {new['next']}, and no seek says so"
        yield from (f"{where}: {name} was {former[name]}, and is {new[name]}" for name in _shrunk(former, new))


def _shrunk(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in GROWING if after[name] < before[name]]


def _sum(parts: Mapping[str, int]) -> int:
    return sum(parts.values())
