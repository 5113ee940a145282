"""Proof files: a chain that shows an altered, missing or reordered file, and a proof that does not go on from the former one."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ingest.runtime.canonical_json import canonical_json
from ingest.runtime.errors import InvalidInput
from ingest.verify.proof.proof_chain import chains, head_finding, read_chain
from ingest.verify.proof.proof_file import digest, proof_of, sha256, write_proof
from tests.command import exit_code
from tests.unit.verify.proof_lake import CONTRACT, Lake

pytestmark = pytest.mark.unit


def proven(lake: Lake) -> Path:
    """Write the next proof of the lake."""
    return write_proof(folder_of(lake), lake.proof())[0]


def folder_of(lake: Lake) -> Path:
    return Path(lake.places.lake) / "proofs/shop/orders"


def three(lake: Lake) -> Path:
    """A chain of three proofs of a growing table."""
    for start in (0, 10, 20):
        lake.batch(start, start + 10, range(start, start + 8), (start + 8,), gap=1)
        proven(lake)
    return folder_of(lake)


def found(folder: Path) -> list[str]:
    """The findings, each as code and the first file that it names."""
    (chain,) = chains(folder)
    return [
        f"{each.code} {next(word.rpartition('/')[2] for word in each.what.split() if '.json' in word).rstrip(':')}"
        for each in chain.findings
    ]


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a proof as somebody would who knows the form: with a new digest."""
    proof = json.loads(path.read_bytes())
    change(proof)
    path.write_bytes(canonical_json({**proof, "digest": digest(proof)}).encode())


def test_a_proof_says_what_was_found_and_names_the_former_one(lake: Lake) -> None:
    folder = three(lake)
    first, second, third = (json.loads((folder / f"00000{n}.json").read_bytes()) for n in (1, 2, 3))
    assert (first["number"], first["previous"], first["ok"], first["schema"], first["table"]) == (
        1,
        None,
        True,
        "oncelake/proof/2",
        "shop.orders",
    )
    assert third["previous"] == sha256((folder / "000002.json").read_bytes())
    assert third["totals"] == {
        "batches": 3,
        "offsets": 30,
        "read": 27,
        "inserted": 24,
        "present": 0,
        "duplicate": 0,
        "quarantined": 3,
        "gap": 3,
        "replayed": 0,
    }
    assert second["partitions"] == [
        {"topic_id": "id", "partition": 0, "start": 0, "end": 20, "next": 20, "offsets": 20, "read": 18, "inserted": 16, "present": 0,
         "duplicate": 0, "quarantined": 2, "gap": 2},
    ]  # fmt: skip
    assert third["rows"]["target"] == {"found": 24, "put": 24, "more": {"too many": 0, "uncommitted": 0},
                                       "less": {"removed": 0, "removed by retention or erasure": 0, "written off by a seek": 0,
                                                "missing": 0}}  # fmt: skip
    assert third["tables"]["target"]["version"] == lake.target.version() and third["contract_hash"] == CONTRACT.hash
    assert (third["quality"], third["audited"], third["kafka"], third["control_totals"]) == (None, None, None, [])
    assert chains(folder)[0].findings == () and found(folder.parent.parent) == []


def test_a_table_that_does_not_balance_gets_a_proof_that_says_so(lake: Lake) -> None:
    three(lake)
    lake.take(3)
    proof = proof_of(proven(lake).read_bytes())
    assert proof is not None and (proof.ok, proof.findings[0]["code"], proof.rows.target.found) == (False, "ROWS_DIFFER", 23)
    assert found(folder_of(lake)) == [], "the chain is unbroken, whatever its proofs say"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_altered_byte_is_found_and_the_file_is_named(lake: Lake, number: int) -> None:
    folder = three(lake)
    path = folder / f"{number:06}.json"
    good = path.read_bytes()
    for at in range(0, len(good), 41):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert found(folder) == [f"PROOF_ALTERED {path.name}"], at
    for more in (good + b"\n", good[:-1], b""):
        path.write_bytes(more)
        assert found(folder) == [f"PROOF_ALTERED {path.name}"]


def test_a_missing_file_is_named(lake: Lake) -> None:
    folder = three(lake)
    (folder / "000002.json").unlink()
    assert found(folder) == ["PROOF_MISSING 000002.json"]
    (folder / "000001.json").unlink()
    assert [str(each) for each in read_chain(folder).findings] == [
        f"PROOF_MISSING: {folder}/000001.json to {folder}/000002.json are missing"
    ]


def test_one_file_with_a_great_number_is_one_finding_and_names_that_no_proof_gets_are_left_out(lake: Lake) -> None:
    folder = three(lake)
    for name in ("0000004.json", "٠٠٠٠٠٥.json", f"{'9' * 200}.json", "000000.json"):
        (folder / name).write_bytes(b"")
    (folder / "000006.json").mkdir()
    assert found(folder) == ["PROOF_MISSING 000004.json", "PROOF_ALTERED 000006.json"]
    (folder / "000006.json").rmdir()
    (folder / "999999999999.json").write_bytes((folder / "000003.json").read_bytes())
    assert found(folder) == ["PROOF_MISSING 000004.json", "PROOF_ALTERED 999999999999.json"]


def test_reordered_and_renumbered_files_are_named(lake: Lake) -> None:
    folder = three(lake)
    first, second, aside = folder / "000001.json", folder / "000002.json", folder / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    assert found(folder)[:2] == ["PROOF_ALTERED 000001.json", "PROOF_ALTERED 000002.json"]


def test_a_file_that_was_rewritten_with_its_digest_breaks_the_chain(lake: Lake) -> None:
    folder = three(lake)
    rewrite(folder / "000002.json", lambda proof: proof.update(made_at=proof["made_at"].replace("20", "19", 1)))
    assert "PROOF_BROKEN 000002.json" in found(folder)


def test_a_chain_that_was_rewritten_as_a_whole_is_found_by_a_hash_kept_elsewhere_and_by_nothing_else(lake: Lake) -> None:
    folder = three(lake)
    head = sha256((folder / "000003.json").read_bytes())
    assert head_finding(read_chain(folder), head.upper()) is None
    proven(lake)
    assert head_finding(read_chain(folder), head) is None, "the chain has grown since"
    before = b""
    for number in (1, 2, 3, 4):
        path = folder / f"{number:06}.json"
        other = {"topic": "x", "previous": sha256(before) if before else None}
        rewrite(path, partial(dict.update, **other))
        before = path.read_bytes()
    chain = read_chain(folder)
    assert chain.findings == ()
    missing = head_finding(chain, head)
    assert missing is not None and missing.code == "PROOF_HEAD"


def alone(proof: dict[str, Any]) -> dict[str, Any]:
    partition: dict[str, Any]
    (partition,) = proof["partitions"]
    return partition


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda proof: alone(proof).update(next=5), "PROOF_BACK", "had been read up to 20, is at 5, and no seek says so"),
        (lambda proof: alone(proof).update(end=15), "PROOF_BACK", "covered [0, 20), and covers [0, 15)"),
        (lambda proof: alone(proof).update(inserted=1), "PROOF_BACK", "inserted was 16, and is 1"),
        (lambda proof: alone(proof).update(partition=7), "PROOF_BACK", "partition 0 of topic id id is no longer covered"),
        (lambda proof: proof["totals"].update(read=1), "PROOF_BACK", "read was 18, and is 1"),
        (lambda proof: proof["tables"]["target"].update(table_id="x"), "PROOF_BACK", "the target is another Delta table"),
        (lambda proof: proof.update(made_at="2001-01-01T00:00:00Z"), "PROOF_BACK", "before the former one"),
        (lambda proof: proof.update(table="shop.other"), "PROOF_BACK", "it is about shop.other"),
        (lambda proof: proof["rows"]["target"].update(found=25), "PROOF_WRONG", "the target has 25 rows, but its figures add up to 24"),
        (lambda proof: proof.update(ok=False), "PROOF_WRONG", "its verdict is False, but it names 0 findings"),
    ],
)
def test_a_proof_that_does_not_go_on_from_the_former_is_found(
    lake: Lake, change: Callable[[dict[str, Any]], object], code: str, said: str
) -> None:
    folder = three(lake)
    rewrite(folder / "000003.json", change)
    (finding,) = read_chain(folder).findings
    assert finding.code == code and said in finding.what and "000003.json" in finding.what


def test_after_a_seek_a_proof_may_go_back_to_an_earlier_offset(lake: Lake) -> None:
    folder = three(lake)
    lake.seek(10)
    lake.batch(10, 20, (), gap=1)
    proof = json.loads(proven(lake).read_bytes())
    assert (proof["seeks"], alone(proof)["next"], alone(proof)["end"]) == (1, 20, 30)
    assert found(folder) == []


def test_after_a_rebuild_the_counts_may_begin_anew(lake: Lake) -> None:
    folder = three(lake)

    def shrink(proof: dict[str, Any]) -> None:
        proof["totals"].update(read=1)
        alone(proof).update(end=15, next=15)

    rewrite(folder / "000003.json", shrink)
    assert found(folder) != []
    rewrite(folder / "000003.json", lambda proof: proof.update(rebuilt=7))
    assert found(folder) == []


def test_a_file_is_checked_with_those_before_it(lake: Lake) -> None:
    folder = three(lake)
    (folder / "000003.json").write_bytes(b"{}")
    assert found(folder / "000002.json") == []
    assert found(folder / "000003.json") == ["PROOF_ALTERED 000003.json"]
    with pytest.raises(InvalidInput, match="PROOF_NOT_FOUND"):
        chains(folder / "000009.json")


def test_two_proofs_at_once_take_two_numbers_and_the_chain_holds(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    said = lake.proof()
    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(lambda _: write_proof(folder_of(lake), said), range(12)))
    assert sorted(path.name for path, _ in written) == [f"{number:06}.json" for number in range(1, 13)]
    assert all(sha256(path.read_bytes()) == hash for path, hash in written)
    assert found(folder_of(lake)) == []


def test_a_proof_of_an_earlier_verification_is_not_written_after_that_of_a_later_one(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    early = lake.proof()
    lake.batch(10, 20, range(10, 20))
    proven(lake)
    with pytest.raises(InvalidInput, match=r"PROOF_OVERTAKEN.*000001\.json: .*run again"):
        write_proof(folder_of(lake), early)
    proven(lake)
    assert found(folder_of(lake)) == [] and len(read_chain(folder_of(lake)).files) == 2


def test_a_damaged_newest_proof_does_not_stop_the_next_one(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    proven(lake).write_bytes(b"{}")
    proven(lake)
    assert found(folder_of(lake)) == ["PROOF_ALTERED 000001.json"]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"schema":"oncelake/proof/2","kafka":' + b"[" * 100_000,
        b'{"schema":"oncelake/proof/2","number":' + b"9" * 10_000 + b"}",
        b'{"schema":"oncelake/proof/2","table":"\xff"}',
        b'"oncelake/proof/2"',
    ],
)
def test_a_file_that_is_no_json_of_a_proof_counts_as_altered(lake: Lake, data: bytes) -> None:
    lake.batch(0, 10, range(10))
    proven(lake).write_bytes(data)
    (finding,) = read_chain(folder_of(lake)).findings
    assert finding.code == "PROOF_ALTERED"


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: proof.update(findings=5),
        lambda proof: proof.update(findings=["ok"]),
        lambda proof: proof.update(ok=1),
        lambda proof: proof.update(number="1"),
        lambda proof: proof.update(number=True),
        lambda proof: proof.update(seeks=None),
        lambda proof: proof.update(made_at="2026-02-30T00:00:00Z"),
        lambda proof: proof.update(made_at="2026-02-03T00:00:00"),
        lambda proof: proof.update(made_at=5),
        lambda proof: proof.update(table="shop.orders: the chain is UNBROKEN\x1b[8m"),
        lambda proof: proof.update(table="shop.orders\n"),
        lambda proof: proof.update(partitions={}),
        lambda proof: proof["partitions"].append(5),
        lambda proof: proof["partitions"][0].update(next="20"),
        lambda proof: proof.update(tables=[]),
        lambda proof: proof["tables"].update(target="x"),
        lambda proof: proof["rows"].pop("quarantine"),
        lambda proof: proof["rows"]["target"].update(more=5),
        lambda proof: proof["rows"]["target"]["less"].update(lost="5"),
        lambda proof: proof["totals"].update(gap=0.5),
    ],
)
def test_a_forged_proof_with_a_value_of_the_wrong_type_counts_as_altered(lake: Lake, change: Callable[[dict[str, Any]], object]) -> None:
    folder = three(lake)
    rewrite(folder / "000003.json", change)
    assert found(folder) == ["PROOF_ALTERED 000003.json"]


@pytest.mark.parametrize("depth", [10, 985])
def test_a_forged_proof_is_judged_however_deep_its_values_are_nested(lake: Lake, depth: int) -> None:
    folder = three(lake)
    proof = json.loads((folder / "000003.json").read_bytes())
    (folder / "000003.json").write_bytes(canonical_json(proof).replace('"kafka":null', f'"kafka":{"[" * depth}{"]" * depth}').encode())
    assert found(folder) == ["PROOF_ALTERED 000003.json"]


def test_a_proof_that_no_longer_names_a_table_goes_back(lake: Lake) -> None:
    folder = three(lake)
    rewrite(folder / "000003.json", lambda proof: proof["tables"].pop("target"))
    assert "another Delta table (id none" in read_chain(folder).findings[0].what


def test_a_forged_proof_cannot_print_a_verdict_of_its_own(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    folder = three(lake)
    hostile = "\x1b[2J\nshop.orders: the chain is UNBROKEN\x1b[8m"
    rewrite(folder / "000003.json", lambda proof: proof["tables"]["target"].update(table_id=hostile))
    assert exit_code("proof", "check", str(folder)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shop.orders: the chain is BROKEN") and any(
        "\\nshop.orders: the chain is UNBROKEN·[8m" in each for each in lines
    )
    assert not any(line.startswith("shop.orders: the chain is UNBROKEN") or "\x1b" in line for line in lines)


@pytest.mark.parametrize("key", ["made_at", "number", "ok", "findings", "rows", "tables", "totals", "partitions", "seeks", "table"])
def test_a_proof_without_a_key_that_a_check_needs_counts_as_altered(lake: Lake, key: str) -> None:
    lake.batch(0, 10, range(10))
    rewrite(proven(lake), lambda proof: proof.pop(key))
    assert found(folder_of(lake)) == ["PROOF_ALTERED 000001.json"]


def test_other_numbered_files_of_a_lake_are_no_proofs(lake: Lake) -> None:
    lake.batch(0, 10, range(10))
    path = proven(lake)
    audited = Path(lake.places.audited)
    audited.mkdir()
    (audited / path.name).write_text('{"schema": "oncelake/audited/1"}')
    assert [chain.folder for chain in chains(Path(lake.places.lake))] == [folder_of(lake)]
