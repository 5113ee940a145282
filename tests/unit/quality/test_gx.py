"""GX as `ingest` starts it: no analytics, no errors on stderr, and results that no binary value or repeated id breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.quality import gx

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]


class OnPandas(gx.Runner):
    """The runner on a pandas frame, which needs no Spark. It handles GX's results in the same way."""

    def __init__(self) -> None:
        self._name, self._context, self._runs = "t", gx.context(), 0
        source = self._context.data_sources.add_pandas(name="frames")
        self._data = source.add_dataframe_asset("t").add_batch_definition_whole_dataframe("rows")


def test_unexpected_binary_values_do_not_end_the_run() -> None:
    """GX cannot serialize the bytearray that PySpark returns for BINARY, and all its results would be lost."""
    frame = pa.table({"id": ["a", "b"], "n": ["", ""]}).to_pandas().assign(n=[bytearray(b"\xff"), bytearray(b"x")])
    config = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "n"}}
    runner = OnPandas()
    with pytest.raises(TypeError, match="cannot be serialized"):
        runner.run([config], frame, {}, form=gx.SUMMARY, index=("id",), samples=10)
    (found,) = runner.run([config], frame, {}, form=gx.SUMMARY, index=("id",), samples=10, values=False)
    assert found["result"]["unexpected_count"] == 2
    assert found["result"]["partial_unexpected_index_list"] == [{"id": "a"}, {"id": "b"}]


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
