"""Oncelake under Airflow 3: read to the end of the topics and check, every ten minutes; verify every night (docs/how-to/airflow.md)."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

# 1: verify or check found something. 2: input or contract is wrong. 3: the start was refused. 70: a bug. A retry finds the same again.
FINAL = {1, 2, 3, 70}
# A run waits up to an hour for a table's lock, so that the nightly maintenance does not fail it (LOCKED is final).
ENVIRONMENT = {"INGEST_LOCK_WAIT_S": "3600", **os.environ}
SCHEDULED = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,  # a run reads to the end of the topics, so there is nothing to catch up on
    "max_active_runs": 1,  # of two runs of a table, the later one waits for the first or fences it
    "default_args": {"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": True},
}


@task
def ingest(*words: str) -> None:
    """Run the command. Settings come from the environment: INGEST_PROJECT, INGEST_LAKE, INGEST_CHECKPOINTS, INGEST_BOOTSTRAP_SERVERS."""
    with subprocess.Popen(["ingest", *words], env=ENVIRONMENT) as command:
        try:
            code = command.wait()
        except BaseException:
            command.terminate()  # SIGTERM: the current batch ends. Airflow kills this process after five seconds
            raise
    if code in FINAL:
        raise AirflowFailException(f"ingest {words[0]} ended with exit code {code}; a retry would end the same way")
    if code:
        raise AirflowException(f"ingest {words[0]} ended with exit code {code}")


@dag(schedule="*/10 * * * *", **SCHEDULED)
def oncelake() -> None:
    """Read every topic to its end, then check the new rows."""
    ingest.override(task_id="run")("run", "--once") >> ingest.override(task_id="check")("check")


@dag(schedule="45 3 * * *", **SCHEDULED)
def oncelake_nightly() -> None:
    """Count the rows of every batch, then compact the tables."""
    ingest.override(task_id="verify")("verify") >> ingest.override(task_id="maintain")("maintain")


oncelake()
oncelake_nightly()
