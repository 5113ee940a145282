"""`ingest proof`, `ingest totals` and `ingest audited` as a user types them, on a lake that deltalake wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ingest.delta.delta_log import DeltaLog
from ingest.quality import audited_version
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places
from tests.another_account import forbidden, open_folder
from tests.command import exit_code
from tests.unit.quality.money_scene import contract_of, paid, write
from tests.unit.verify.proof_lake import CONTRACT, Lake

pytestmark = pytest.mark.unit


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Ingest = Callable[..., Done]


@pytest.fixture
def ingest(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """Runs a command on the project, lake and checkpoints in `tmp_path`."""
    for name, value in (("PROJECT", tmp_path), ("LAKE", tmp_path / "lake"), ("CHECKPOINTS", tmp_path / "checkpoints")):
        monkeypatch.setenv(f"INGEST_{name}", str(value))
    (tmp_path / "tables").mkdir()

    def run(*words: str) -> Done:
        capsys.readouterr()
        code = exit_code(*words)
        out = capsys.readouterr()
        return Done(code, out.out, out.err)

    return run


def test_a_proof_is_made_listed_and_checked(lake: Lake, ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json())
    lake.batch(0, 10, range(8), (8, 9))
    lake.verified()
    assert ingest("proof", "list").out == "shop.orders: no proof\n"
    made = ingest("proof", "make")
    assert made.code == 0 and "BALANCED" in made.out
    path, head = (line.split()[1] for line in made.out.splitlines()[-2:])
    assert path == str(tmp_path / "lake/proofs/shop/orders/000001.json")
    lake.take(3)
    document = ingest("proof", "make", "--json")
    assert document.code == 1 and document.document["schema"] == "oncelake/proof-make/1"
    assert document.document["tables"][0]["findings"][0]["code"] == "ROWS_DIFFER"
    listed = ingest("proof", "list", "orders")
    assert "000001" in listed.out and "8 rows" in listed.out and "DOES NOT BALANCE" in listed.out and head in listed.out
    checked = ingest("proof", "check", str(tmp_path / "lake/proofs"), "--head", head)
    assert checked.code == 0 and "UNBROKEN" in checked.out and "000002.json says that the balance did not hold" in checked.out
    assert ingest("proof", "check", str(tmp_path / "lake/proofs"), "--head", "0" * 64).code == 1
    Path(path).write_bytes(Path(path).read_bytes().replace(b'"number":1', b'"number":3'))
    broken = ingest("proof", "check", str(tmp_path / "lake/proofs"), "--json")
    assert (broken.code, broken.document["ok"], broken.document["tables"][0]["findings"][0]["code"]) == (1, False, "PROOF_ALTERED")
    assert path in broken.document["tables"][0]["findings"][0]["what"]


def test_no_proof_is_written_of_a_table_that_cannot_be_verified(ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json())
    done = ingest("proof", "make", "--json")
    assert (done.code, done.document["error"]["code"]) == (2, "TABLE_MISSING")
    assert not (tmp_path / "lake/proofs").exists()
    assert ingest("proof", "check", str(tmp_path), "--json").document["error"]["code"] == "PROOF_NOT_FOUND"


def test_a_proof_of_another_account_cannot_be_read(ingest: Ingest) -> None:
    with open_folder() as folder:
        proof = folder / "000001.json"
        proof.touch()
        assert ingest("proof", "check", str(proof)).code == 1
        with forbidden(proof, 0o220):
            done = ingest("proof", "check", str(proof))
    assert done.code == 4 and f"NOT_READABLE: {proof} cannot be read: Permission denied." in done.err


def test_totals_are_printed_and_a_difference_from_the_figures_ends_with_1(ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "tables/payments.yml").write_text(contract_of().to_json())
    assert ingest("totals", "--json").document["error"]["code"] == "TABLE_MISSING"
    write(tmp_path, paid(1, "EUR", "0.1"), paid(1, "EUR", "0.2"), paid(2, "EUR", "5"))
    plain = ingest("totals", "payments")
    assert plain.code == 0 and "fees 2026-11-01 EUR fee: ours 0.3000 (not judged)" in plain.out
    figures = tmp_path / "figures.csv"
    figures.write_text("day,currency,fee,items\n2026-11-01,EUR,0.30,2\n")
    good = ingest("totals", "--figures", str(figures))
    assert good.code == 0 and "version 0: 2 figures agree" in good.out
    write(tmp_path, paid(1, "EUR", "0.02"))
    wrong = ingest("totals", "--figures", str(figures), "--json")
    (line,) = [each for each in wrong.document["tables"][0]["totals"] if each["verdict"] == "differs" and each["column"] == "fee"]
    assert (wrong.code, line["ours"], line["theirs"], line["difference"]) == (1, "0.3200", "0.30", "0.0200")
    assert ingest("totals", "--figures", str(figures), "--version", "0").code == 0
    assert ingest("totals", "--version", "9", "--json").document["error"]["code"] == "VERSION_UNKNOWN"
    both = ingest("totals", "--figures", str(figures), "--figures-topic", "x", "--json")
    assert (both.code, both.document["error"]["code"]) == (2, "OPTIONS_CONTRADICT")


def test_the_audited_version_is_shown_queried_and_released(ingest: Ingest, tmp_path: Path) -> None:
    (tmp_path / "tables/payments.yml").write_text(contract_of(quality="hold").to_json())
    places: Places = write(tmp_path, paid(1, "EUR", "1"))
    log, files = DeltaLog(LocalFiles(), places.target), LocalFiles()

    def snapshot() -> Any:
        state = log.state()
        assert state is not None
        return state.snapshot

    assert "no audited version (the newest is 0)" in ingest("audited", "show").out
    assert ingest("sql", "SELECT * FROM payments__audited", "--json").document["error"]["code"] == "SQL_TABLE_UNKNOWN"
    audited_version.passed(files, places, snapshot(), "run-a")
    write(tmp_path, paid(1, "EUR", "2"))
    audited_version.failed(files, places, snapshot(), "run-b", "fee")
    shown = ingest("audited", "show")
    assert shown.code == 0 and "version 0, audited at" in shown.out and "held back since" in shown.out
    counts = (
        f"(SELECT count(*) FROM {name}) AS n{at}" for at, name in enumerate(("payments", "payments__audited", "shop.payments__audited"))
    )
    sums = f"SELECT {', '.join(counts)}"
    assert ingest("sql", sums, "--json").document["rows"] == [[2, 1, 1]]
    assert ingest("audited", "show", "--view").out.endswith("VERSION AS OF 0;\n")
    assert ingest("audited", "release", "payments", "--version", "1", "--by", " ", "--why", "x", "--json").code == 2
    assert ingest("audited", "release", "payments", "--version", "1", "--by", "Ada L.", "--why", "a test").code == 0
    shown = ingest("audited", "show", "--history")
    assert "released  version 1  by Ada L.: a test" in shown.out and "failed    version 1  run run-b: fee" in shown.out
    assert ingest("sql", sums, "--json").document["rows"] == [[2, 2, 2]]
    next((Path(places.target)).glob("*.parquet")).unlink()
    gone = ingest("audited", "show", "--json")
    assert (gone.code, gone.document["tables"][0]["unreadable"]) == (1, "VACUUM has removed 1 of its 2 files")
