"""`ingest proof`: write what a verification found into a chain of hashed files, and check such a chain without the lake."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_json, print_verdict
from ingest.runtime.output import out_line

if TYPE_CHECKING:
    from ingest.contract.definition import Contract
    from ingest.delta.delta_sql import Engine
    from ingest.runtime.places import Places
    from ingest.verify.proof.proof_chain import Chain, ProofFile
    from ingest.verify.verdict import Verified

proof = typer.Typer(name="proof", help="Write proofs into a chain of hashed files, and check it.", no_args_is_help=True)
app.add_typer(proof)


@dataclass(frozen=True)
class Proven:
    """A proof that was written: its file and the SHA-256 of its bytes."""

    table: str
    path: Path
    sha256: str
    seen: Verified


@o.verb(proof, "checkpoints", "bootstrap_servers", "master")
def make(
    env: o.Environment,
    tables: o.Tables = None,
    against_kafka: Annotated[bool, typer.Option("--against-kafka", help="Re-read the topic, as `ingest verify` does.")] = False,
    with_spark: Annotated[bool, typer.Option("--spark", help="Count through Spark.")] = False,
    as_json: o.Json = False,
) -> int:
    """Verify tables and write what was found into a proof file. Exit 1: the balance does not hold; the proof says so.
    It prints the file's hash: keep that in another place.

    Example: ingest proof make payments --against-kafka
    """
    from ingest.cli.verify import print_balance, verify_tables
    from ingest.quality.quality_proof import quality_proof
    from ingest.runtime.places import proofs_folder
    from ingest.verify.proof.proof_file import content, write_proof

    def write(engine: Engine, contract: Contract, places: Places, seen: Verified) -> Proven:
        quality = quality_proof(engine, contract, places, seen.tables["target"].version)
        return Proven(places.name, *write_proof(proofs_folder(places), content(contract, places, seen, quality)), seen)

    def show(proven: Proven) -> None:
        print_balance(proven.seen)
        out_line(f"  proof       {proven.path}")
        out_line(f"  sha256      {proven.sha256}")

    found, errors = verify_tables(env, tables, "proof", write, against_kafka=against_kafka, with_spark=with_spark)
    wrong = any(each.seen.findings for each in found)
    return print_verdict("proof-make", found, errors, as_json=as_json, as_row=_as_row, show=show, code=int(wrong))


def _as_row(proven: Proven) -> dict[str, Any]:
    findings = [asdict(each) for each in proven.seen.findings]
    return {"table": proven.table, "ok": not findings, "path": str(proven.path), "sha256": proven.sha256, "findings": findings}


@proof.command()
def check(
    place: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A folder of proofs with all below it, or the last file to check.")],
    head: Annotated[
        str | None, typer.Option("--head", metavar="SHA256", help="A hash that was kept elsewhere: one of the proofs must have it.")
    ] = None,
    as_json: o.Json = False,
) -> int:
    """Check a chain of proofs without lake and Kafka. Exit 1: a file was altered, is missing or out of order, or does not
    go on from the former. Whoever can rewrite all files can rewrite the chain; --head finds that.

    Example: ingest proof check lake/proofs/shop/payments --head 5e1c…
    """
    from ingest.runtime.errors import InvalidInput
    from ingest.verify.proof.proof_chain import chains, head_finding

    found = chains(place)
    if head is not None:
        if len(found) != 1:
            raise InvalidInput(
                "PROOF_HEAD_UNCLEAR", f"{place} has the proofs of {len(found)} tables.", expected="those of one.", remedy="name its folder."
            )
        if (finding := head_finding(found[0], head)) is not None:
            found = [replace(found[0], findings=(*found[0].findings, finding))]
    wrong = any(chain.findings for chain in found)
    return print_verdict("proof-check", found, {}, as_json=as_json, as_row=_chain_row, show=_print_chain, code=int(wrong))


def _chain_row(chain: Chain) -> dict[str, Any]:
    proofs = [_proof_row(each) for each in chain.files]
    return {"table": chain.table, "ok": not chain.findings, "findings": [asdict(each) for each in chain.findings], "proofs": proofs}


def _print_chain(chain: Chain) -> None:
    from ingest.verify.proof.proof_file import utc

    last = chain.files[-1]
    span = f"proofs {chain.files[0].number} to {last.number}, newest made at {utc(last.proof.made_at) if last.proof else 'an unknown time'}"
    out_line(f"{chain.table}: {'the chain is UNBROKEN' if not chain.findings else 'the chain is BROKEN'} ({span})")
    out_line(f"  newest      {last.sha256}")
    for each in chain.files:
        if each.proof and not each.proof.ok:
            out_line(f"  note: {each.path.name} says that the balance did not hold ({len(each.proof.findings)} findings)")
    for finding in chain.findings:
        out_line(f"  ! {finding}")


@o.verb(proof, name="list")
def list_proofs(env: o.Environment, tables: o.Tables = None, as_json: o.Json = False) -> None:
    """List the proofs of tables, newest last: when each was made, its verdict, its rows and its hash.

    Example: ingest proof list payments
    """
    from ingest.runtime.files import LocalFiles
    from ingest.runtime.numbered_files import numbers
    from ingest.runtime.places import proofs_folder
    from ingest.verify.proof.proof_chain import read_chain

    rows: dict[str, tuple[ProofFile, ...]] = {}
    for at in map(env.places, env.contracts(tables)):
        folder = proofs_folder(at)
        rows[at.name] = read_chain(folder).files if numbers(LocalFiles(), str(folder)) else ()
    if as_json:
        print_json("proof-list", ok=True, tables=[{"table": name, "proofs": [*map(_proof_row, of)]} for name, of in rows.items()])
        return
    for name, of in rows.items():
        out_line(f"{name}: {f'{len(of)} proofs' if of else 'no proof'}")
        for each in map(_proof_row, of):
            verdict = "BALANCED" if each["ok"] else "UNREADABLE" if each["ok"] is None else "DOES NOT BALANCE"
            out_line(f"  {each['number']:06}  {each['made_at']}  {verdict:<16}  {each['rows']:>14,} rows  {each['sha256']}")


def _proof_row(each: ProofFile) -> dict[str, Any]:
    from ingest.verify.proof.proof_file import utc

    of = each.proof
    row = {"number": each.number, "path": str(each.path), "made_at": utc(of.made_at) if of else "unknown", "ok": of.ok if of else None}
    return {**row, "rows": of.rows.target.found if of else 0, "sha256": each.sha256}
