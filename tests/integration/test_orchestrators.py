"""The files for Airflow and Dagster, in an environment that has both: they load, run one at a time, and retry only what may pass."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
PYTHON = PROJECT / ".venv-orchestrators/bin/python"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="Airflow and Dagster are not installed: make orchestrators"),
]

AIRFLOW = """
import json, airflow_dag as page
from airflow.sdk.exceptions import AirflowFailException
dags = [page.oncelake(), page.oncelake_nightly()]
found = {each.dag_id: [each.max_active_runs, each.catchup, {t.task_id: sorted(t.upstream_task_ids) for t in each.tasks}] for each in dags}
outcome = "success"
try:
    page.ingest.function("run", "--once")
except AirflowFailException:
    outcome = "final"
except Exception:
    outcome = "retry"
print(json.dumps([found, outcome]))
"""

DAGSTER = """
import json, dagster as dg, dagster_definitions as page
with dg.instance_for_test() as instance:
    try:
        page.ingest("run", "--once")
        outcome = "success"
    except dg.Failure as failure:
        outcome = "retry" if failure.allow_retries else "final"
    context = dg.build_schedule_context(instance=instance)
    first = type(page.every_ten_minutes(context)).__name__
    run = instance.create_run_for_job(page.oncelake, status=dg.DagsterRunStatus.STARTED)
    second = type(page.every_ten_minutes(context)).__name__
found = map(page.defs.resolve_job_def, ("oncelake", "oncelake_nightly"))
jobs = {job.name: [node.name for node in job.nodes_in_topological_order] for job in found}
print(json.dumps([jobs, first, second, outcome]))
"""


def executed(code: str, folder: Path, exit_code: int) -> Any:
    """Run the code beside the pages' files, with a command `ingest` that ends with this exit code."""
    command = folder / "bin/ingest"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"#!/bin/sh\n[ $INGEST_LOCK_WAIT_S = 3600 ] || exit 70\nexit {exit_code}\n", encoding="utf-8")
    command.chmod(0o755)
    environment = {
        **{"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT / "docs/how-to"), "HOME": str(folder)},
        **{"AIRFLOW_HOME": str(folder / "airflow"), "DAGSTER_HOME": "", "DO_NOT_TRACK": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    }
    done = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("exit_code", "expected"), [(0, "success"), (3, "final"), (5, "retry")])
def test_airflow_loads_the_dags_and_retries_only_what_may_pass(exit_code: int, expected: str, tmp_path: Path) -> None:
    dags, outcome = executed(AIRFLOW, tmp_path, exit_code)
    assert dags == {
        "oncelake": [1, False, {"run": [], "check": ["run"]}],
        "oncelake_nightly": [1, False, {"verify": [], "maintain": ["verify"]}],
    }
    assert outcome == expected


@pytest.mark.parametrize(("exit_code", "expected"), [(0, "success"), (3, "final"), (5, "retry")])
def test_dagster_loads_the_jobs_and_skips_while_a_run_is_unfinished(exit_code: int, expected: str, tmp_path: Path) -> None:
    jobs, first, second, outcome = executed(DAGSTER, tmp_path, exit_code)
    assert jobs == {"oncelake": ["run", "check"], "oncelake_nightly": ["verify", "maintain"]}
    assert (first, second, outcome) == ("RunRequest", "SkipReason", expected)
