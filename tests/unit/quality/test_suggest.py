"""The range in a suggested suite contains the values it was derived from."""

from __future__ import annotations

import json
import math
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T

from ingest.cli.app import main
from ingest.quality.suggest import _of

pytestmark = pytest.mark.unit

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)


def bounds(least: float, greatest: float) -> dict[str, Any]:
    """The range arguments suggested for a column with these values; empty if none is suggested."""
    profile = Row(**{"rows": 2, "held n": 2, "least n": least, "greatest n": greatest})
    found = list(_of(T.StructField("n", T.DoubleType()), profile, None, [], hidden=False))
    return next((each["kwargs"] for each in found if each["type"] == "expect_column_values_to_be_between"), {})


@given(NUMBERS, NUMBERS)
@example(-1_000_000_000_000_001, 1_000_000_000_000_001)
@example(-1000.0000000000001, 1000.0000000000001)
@example(5e-324, 1.7e308)
def test_the_range_contains_the_observed_values_and_is_finite(one: float, two: float) -> None:
    found = bounds(min(one, two), max(one, two))
    if not found:
        assert max(abs(one), abs(two)) > 1e308
        return
    assert found["min_value"] <= min(one, two) and max(one, two) <= found["max_value"]
    assert all(math.isfinite(found[name]) for name in ("min_value", "max_value"))


def test_a_range_is_wider_than_the_observed_values_but_keeps_their_sign() -> None:
    found = bounds(0.5, 42.0)
    assert (found["min_value"], found["max_value"]) == (0.0, 100.0)
    assert math.copysign(1, found["min_value"]) == 1


@pytest.mark.parametrize("written", [True, False])
def test_the_command_prints_one_json_document_and_the_file_that_it_wrote(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables").mkdir()
    shutil.copy(Path(__file__).parents[3] / "tables/orders.yml", tmp_path / "tables")
    suite = {"name": "shop.orders", "expectations": []}
    monkeypatch.setattr("ingest.runtime.spark.session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("ingest.quality.suggest.suggest_suite", lambda *_: json.dumps(suite))
    words = ["ingest", "suggest", "orders", "--project", str(tmp_path), "--lake", str(tmp_path / "lake"), "--json"]
    monkeypatch.setattr(sys, "argv", [*words, *([] if written else ["--stdout"])])
    main()
    found = json.loads(capsys.readouterr().out)
    file = tmp_path / "expectations/orders.json"
    assert found["schema"] == "oncelake/suggest/1"
    assert found["tables"] == [{"table": "shop.orders", "ok": True, "file": str(file) if written else None, "suite": suite}]
    assert file.exists() == written
