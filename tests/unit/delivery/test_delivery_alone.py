"""Other teams use `ingest.delivery.kafka` in their services: it needs no Spark, no Java and no library that reads the lake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).parents[3]
# The modules that docs/tutorial/delivery.md and the commands `transactions` and `semantics` import.
MODULES = (
    "delivery.kafka",
    "kafka.open_transactions",
    "lab.delivery_modes.comparison",
    "contract.event_id",
    "contract.definition",
    "lab.proxy",
)
HEAVY = ("pyspark", "py4j", "delta", "deltalake", "pyarrow", "pandas", "great_expectations")


def test_the_kafka_api_and_its_commands_import_no_spark() -> None:
    code = f"import sys, {', '.join(f'ingest.{name}' for name in MODULES)}; print([m for m in {HEAVY} if m in sys.modules])"
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": ""}
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env=bare, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")


def test_a_service_that_only_writes_its_outbox_loads_no_kafka_client() -> None:
    code = "import sys, ingest.delivery.outbox.event; print([m for m in ('kafka', 'pyspark', 'alembic') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == ("[]", "")
