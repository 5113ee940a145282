"""GX as `ingest` starts it: no analytics, no errors on stderr, and results that no binary value or repeated id breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.quality import gx
from ingest.quality.validation_result import exception_of

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]


class OnPandas(gx.Runner):
    """The runner on a pandas frame, which needs no Spark. It handles GX's results in the same way."""

    def __init__(self) -> None:
        self._name, self._database, self._runs = "t", None, 0
        self._source = gx.context().data_sources.add_pandas(name="frames")


def test_unexpected_binary_values_do_not_end_the_run() -> None:
    """GX cannot serialize the bytearray that PySpark returns for BINARY."""
    frame = pa.table({"id": ["a", "b"], "n": ["", ""]}).to_pandas().assign(n=[bytearray(b"\xff"), bytearray(b"x")])
    configs = [{"type": f"expect_column_values_to_{kind}", "kwargs": {"column": "n"}} for kind in ("be_null", "not_be_null")]
    found, fine = OnPandas().run(configs, frame, {}, form=gx.SUMMARY, index=("id",), samples=10)
    assert "cannot be serialized" in str(exception_of(found)) and fine["success"]
    found, fine = OnPandas().run(configs, frame, {}, form=gx.SUMMARY, index=("id",), samples=10, values=False)
    assert found["result"]["unexpected_count"] == 2
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "a"}, {"id": "b"}]


def test_quantiles_are_judged_although_gx_cannot_write_numpys_bool() -> None:
    ranges = {"quantiles": [0.5], "value_ranges": [[1, 3]]}
    config = {"type": "expect_column_quantile_values_to_be_between", "kwargs": {"column": "n", "quantile_ranges": ranges}}
    (found,) = OnPandas().run([config], pa.table({"n": [1, 2, 3]}).to_pandas(), {}, form=gx.SUMMARY, index=(), samples=10)
    assert found["success"] is True and found["result"]["details"] == {"success_details": [True]}
    assert json.dumps(found)


def test_what_one_expectation_raises_is_its_own_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what GX itself does not catch, such as an unknown argument of a suite that nobody has checked."""
    fine = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1}}
    wrong = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": "x"}}
    first, second, third = OnPandas().run([fine, wrong, fine], pa.table({"n": [1]}).to_pandas(), {}, form=gx.SUMMARY, index=(), samples=1)
    assert first["success"] and third["success"] and not second["success"]
    assert "ValidationError" in str(exception_of(second))


def test_an_expectation_that_was_copied_with_its_id_is_evaluated_separately() -> None:
    """Results are found by id. GX creates new ids for every run; an id in a file may occur twice."""
    frame = pa.table({"n": [1, 1]}).to_pandas()
    configs = [
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "n", "value_set": [n]},
            "id": "da59726d-f30c-4453-93c7-a4b3dadf5542",
        }
        for n in (9, 1)
    ]
    found = OnPandas().run(configs, frame, {}, form=gx.SUMMARY, index=(), samples=10)
    assert [each["success"] for each in found] == [False, True]


def test_analytics_of_gx_are_disabled() -> None:
    made = gx.context()
    assert made.config.analytics_enabled is False
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert made.mode == "ephemeral"


def test_gx_and_pyspark_do_not_log_errors_to_stderr() -> None:
    """PySpark logs an error when it creates it (pyspark.errors.exceptions.base). The loggers of a new process are unconfigured."""
    statement = "logger = PySparkLogger.getLogger(name); logger.propagate = False; logger.exception('Ada Lovelace')"
    code = f"""
import logging, sys
from pyspark.logger import PySparkLogger
from ingest.quality import gx
if sys.argv[1:]:
    gx.context()
    logging.getLogger("great_expectations.execution_engine").error("Ada Lovelace")
for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    {statement}
"""
    for more, found in (((), True), (("with GX",), False)):
        ended = subprocess.run([sys.executable, "-c", code, *more], cwd=PROJECT, capture_output=True, text=True, check=True)
        assert ("Ada" in ended.stdout + ended.stderr) == found
