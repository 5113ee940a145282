"""`ingest status` names the audited version of a table, and what holds it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import exit_code
from tests.unit.observe.report.report_lake import ReportLake
from tests.unit.verify.proof_lake import CONTRACT

pytestmark = pytest.mark.unit


def test_a_hold_is_shown_and_a_damaged_record_hides_no_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = ReportLake(tmp_path)
    lake.batch(0, 10, range(10))
    lake.keep()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/orders.yml").write_text(CONTRACT.to_json(), encoding="utf-8")

    def status(*words: str) -> str:
        places = ["--project", str(tmp_path), "--lake", lake.places.lake, "--checkpoints", lake.places.checkpoints]
        code = exit_code("status", *places, "--bootstrap-servers", "127.0.0.1:1", *words)
        assert code == 3, "the small lake is no table that a run would continue"
        return capsys.readouterr().out

    def row() -> Any:
        (found,) = json.loads(status("--json"))["tables"]
        return found

    assert row()["audit"] == {"audited": None, "held": None} and "audited" not in status()
    lake.held()
    audit = row()["audit"]
    assert audit["held"]["version"] == lake.target.version()
    version, since = audit["audited"]["version"], audit["held"]["since"]
    assert f"  audited      version {version}; held back since {since} (ingest audited show shop.orders)" in status()
    (Path(lake.places.audited) / "000002.json").write_text("{")
    assert row()["audit"] is None and "audited      unknown: its record is damaged" in status()
