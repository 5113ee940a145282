"""`ingest status` names the audited version of a table, what holds it back, and its index of event ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.delta.index_state import IndexState, index_place
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
    assert row()["index"] is None and "event ids" not in status()
    place = index_place(lake.places)
    assert place is not None
    IndexState(5_000_000, rows=1_200, bytes=24_500, levels=2, answered=97, read=3).write(place[0])
    assert row()["index"] == {**vars(IndexState(5_000_000, 1_200, 24_500, 2, 97, 3)), "no_room": 0}
    assert "  event ids    1,200 rows in 2 levels, 0.0 of 5 MB; it answered 97 of 100 probes of files\n" in status()
    IndexState(5_000_000, answered=97, read=3, no_room=2).write(place[0])
    assert "  ! it is full, so a file was read 2 times (INGEST_ID_INDEX_MB)" in status()
