"""`ingest quarantine export` without Spark: the file is its owner's alone, appears whole, and never over another."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.another_account import forbidden, open_folder
from tests.command import exit_code

pytestmark = pytest.mark.unit

CONTRACT = """\
pipeline: shop
table: orders
source: {topic: orders, format: json}
columns: [{name: id, type: BIGINT, nullable: false}]
event_id: [id]
"""
QUARANTINE = "lake/shop/orders/quarantine"
HOSTILE = "\x1b[2J\nshop.orders: 0 records"


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, ...]:
    return filled(tmp_path)


def filled(folder: Path) -> tuple[str, ...]:
    """A project with one record in quarantine, whose reason and value a producer has chosen."""
    (folder / "tables").mkdir()
    (folder / "tables/orders.yml").write_text(CONTRACT)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    times = {name: pa.array([now], pa.timestamp("us", "UTC")) for name in ("kafka_timestamp", "state_changed_at")}
    numbers = {name: [0] for name in ("source", "partition", "offset", "epoch", "batch")}
    texts = {name: ["x"] for name in ("topic", "topic_id", "reason_code", "event_id", "state_by", "contract_hash")}
    bytes_ = {"key": [b"k"], "value": [HOSTILE.encode()], "headers": [b""]}
    row = {**times, **numbers, **texts, **bytes_, "reason_detail": [f"unknown field {HOSTILE}"], "state": ["open"]}
    write_deltalake(str(folder / QUARANTINE), pa.table(row))
    return ("--project", str(folder), "--lake", str(folder / "lake"))


def test_the_file_has_the_bytes_and_is_its_owners_alone(places: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    former = os.umask(0)
    try:
        assert exit_code("quarantine", "export", "orders", "--out", str(out), *places) == 0
    finally:
        os.umask(former)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert json.loads(out.read_text())["value_text"] == HOSTILE
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lake", "out.ndjson", "tables"], "no temporary file is left"


@pytest.mark.parametrize("there", ["file", "link", "dangling link", "no folder"])
def test_a_path_that_exists_is_refused_and_stays_as_it_is(places: tuple[str, ...], tmp_path: Path, there: str) -> None:
    theirs = tmp_path / "theirs"
    out = tmp_path / ("absent/out" if there == "no folder" else "out")
    if there in ("file", "link"):
        theirs.write_text("theirs")
    if there == "file":
        theirs.rename(out)
    elif "link" in there:
        out.symlink_to(theirs)
    assert exit_code("quarantine", "export", "orders", "--out", str(out), *places) == 2
    assert not (there == "dangling link" and theirs.exists()) and not (there == "no folder" and out.parent.exists())
    assert there not in ("file", "link") or out.read_text() == "theirs"


def test_the_file_is_not_blamed_for_a_quarantine_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with open_folder() as folder:
        words = ("quarantine", "export", "orders", *filled(folder), "--out")
        (out := folder / "out").mkdir()
        out.chmod(0o777)
        assert exit_code(*words, str(out / "first")) == 0
        with forbidden(log := folder / QUARANTINE / "_delta_log"):
            assert exit_code(*words, str(out / "second")) == 4
        assert f"NOT_READABLE: {log} " in capsys.readouterr().err
        with forbidden(out, 0o555):
            assert exit_code(*words, str(out / "second")) == 2
        assert "EXPORT_FILE" in capsys.readouterr().err


def test_a_value_neither_controls_the_terminal_nor_begins_a_line(places: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("quarantine", "show", "orders", *places) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("partition 0 of topic x offset 0, "), "the contract names another topic"
    assert lines[1:] == ["  x: unknown field ·[2J\\nshop.orders: 0 records", "  ·[2J\\nshop.orders: 0 records"]
