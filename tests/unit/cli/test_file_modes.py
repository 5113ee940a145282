"""Files that show values or event ids are not for others (docs/reference/settings.md, who may read the files)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.cli import audit, report
from tests.command import exit_code
from tests.unit.verify.proof_lake import CONTRACT, Lake

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """The modes are those of the program, not of the account that runs the tests."""
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_report_is_for_its_owner(tmp_path: Path) -> None:
    report._write(tmp_path / "report.html", "<p>")
    assert mode(tmp_path / "report.html") == 0o600


@pytest.mark.parametrize("name", ["list.csv", "list.parquet"])
def test_a_list_of_an_audit_is_for_its_owner(tmp_path: Path, name: str) -> None:
    write = audit._writer(tmp_path / name)
    assert write is not None
    write(pa.table({"event_id": ["a"]}))
    assert mode(tmp_path / name) == 0o600


def test_proofs_are_for_the_owner_and_the_group(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PROJECT", tmp_path), ("LAKE", tmp_path / "lake"), ("CHECKPOINTS", tmp_path / "checkpoints")):
        monkeypatch.setenv(f"INGEST_{name}", str(value))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json())
    lake.batch(0, 10, range(8), (8, 9))
    lake.verified()
    assert exit_code("proof", "make") == 0
    assert mode(tmp_path / "lake/proofs/shop/orders/000001.json") == 0o660
