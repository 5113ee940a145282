"""A chain of proof files, checked without the lake: nothing altered, missing or reordered, and each proof goes on from the former."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ingest.runtime import numbered_files
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import LocalFiles
from ingest.verify.balance import Finding
from ingest.verify.proof.proof_file import SCHEMA, Proof, proof_of, sha256
from ingest.verify.proof.went_back import went_back


@dataclass(frozen=True)
class ProofFile:
    """A file as found; `proof` is None if it is no proof, or was altered."""

    path: Path
    number: int
    sha256: str
    proof: Proof | None


@dataclass(frozen=True)
class Chain:
    """The proofs of one folder, in order, and what is wrong with them."""

    folder: Path
    files: tuple[ProofFile, ...]
    findings: tuple[Finding, ...]

    @property
    def table(self) -> str:
        """`pipeline.table`, as the newest readable proof says; else the folder."""
        return next((each.proof.table for each in reversed(self.files) if each.proof), str(self.folder))


def chains(place: Path) -> list[Chain]:
    """The chains at a place: a folder with all below it, or a proof file with those before it. Raises InvalidInput PROOF_NOT_FOUND."""
    if place.is_file() and (number := numbered_files.number_of(place.name)):
        return [read_chain(place.parent, number)]
    numbered = (
        path
        for path in place.rglob("*.json")
        if numbered_files.number_of(path.name) and path.parent.name != "_delta_log" and path.is_file()
    )
    # A lake has other numbered files, such as the history of the audited version. A folder without any proof is no chain.
    folders = {path.parent for path in numbered if SCHEMA.encode() in path.read_bytes()}
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
            data = path.read_bytes() if path.is_file() else b""
            found.append(ProofFile(path, number, sha256(data), proof_of(data)))
    return Chain(folder, tuple(found), tuple(_findings(folder, found)))


def head_finding(chain: Chain, head: str) -> Finding | None:
    """PROOF_HEAD if no proof of the chain has this hash. A proof that is not the newest may have it: the chain has grown since."""
    if any(each.sha256 == head.lower() for each in chain.files):
        return None
    return Finding(
        "PROOF_HEAD", f"no proof in {chain.folder} has the SHA-256 {head}: the chain is not the one that this hash was taken from"
    )


def _findings(folder: Path, files: Sequence[ProofFile]) -> Iterator[Finding]:
    for former, number in pairwise((0, *(each.number for each in files))):
        if number > former + 1:
            first, last = (numbered_files.path_of(str(folder), each) for each in (former + 1, number - 1))
            yield Finding("PROOF_MISSING", f"{first} is missing" if first == last else f"{first} to {last} are missing")
    before: ProofFile | None = None
    for each in files:
        own = list(_own(each))
        yield from own
        if each.proof is not None and not own:
            yield from _chained(before, each)
        before = each


def _own(each: ProofFile) -> Iterator[Finding]:
    """What is wrong with a file by itself."""
    if each.proof is None:
        yield Finding("PROOF_ALTERED", f"{each.path} was altered: its content does not match its own digest, or is no whole proof")
        return
    proof = each.proof
    if proof.number != each.number:
        yield Finding("PROOF_ALTERED", f"{each.path} is proof {proof.number}, so somebody renamed it")
    for table, rows in (("target", proof.rows.target), ("quarantine", proof.rows.quarantine)):
        if rows.found != (total := rows.put + sum(rows.more.values()) - sum(rows.less.values())):
            yield Finding("PROOF_WRONG", f"{each.path}: the {table} has {rows.found} rows, but its figures add up to {total}")
    if proof.ok != (not proof.findings):
        yield Finding("PROOF_WRONG", f"{each.path}: its verdict is {proof.ok}, but it names {len(proof.findings)} findings")


def _chained(before: ProofFile | None, each: ProofFile) -> Iterator[Finding]:
    """How a proof goes on from the one before it. After a missing or altered file there is nothing to compare with."""
    assert each.proof is not None
    if before is None or before.number != each.number - 1:
        if each.number == 1 and each.proof.previous is not None:
            yield Finding("PROOF_BROKEN", f"{each.path} is the first proof, but names one before it")
        return
    if each.proof.previous != before.sha256:
        if before.proof is not None:
            yield Finding("PROOF_BROKEN", f"{before.path} is not the file that {each.path.name} goes on from: one of them was replaced")
        return
    if before.proof is not None:
        yield from (Finding("PROOF_BACK", f"{each.path}: {what}") for what in went_back(before.proof, each.proof))
