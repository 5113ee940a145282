"""Oncelake under Dagster: read to the end of the topics and check, every ten minutes; verify every night (docs/how-to/dagster.md)."""

from __future__ import annotations

import os
import subprocess

import dagster as dg

# 1: verify or check found something. 2: input or contract is wrong. 3: the start was refused. 70: a bug. A retry finds the same again.
FINAL = {1, 2, 3, 70}
# A run waits up to an hour for a table's lock, so that the nightly maintenance does not fail it (LOCKED is final).
ENVIRONMENT = {"INGEST_LOCK_WAIT_S": "3600", **os.environ}
UNFINISHED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
RETRIES = dg.RetryPolicy(max_retries=3, delay=60, backoff=dg.Backoff.EXPONENTIAL)


def ingest(*words: str) -> None:
    """Run the command. Settings come from the environment: INGEST_PROJECT, INGEST_LAKE, INGEST_CHECKPOINTS, INGEST_BOOTSTRAP_SERVERS."""
    with subprocess.Popen(["ingest", *words], env=ENVIRONMENT) as command:
        try:
            code = command.wait()
        except BaseException:
            command.terminate()  # SIGTERM: the current batch ends, and `with` waits for it
            raise
    if code:
        raise dg.Failure(f"ingest {words[0]} ended with exit code {code}", allow_retries=code not in FINAL)


@dg.op(retry_policy=RETRIES, out=dg.Out(dg.Nothing))
def run() -> None:
    """Read every topic to its end."""
    ingest("run", "--once")


@dg.op(retry_policy=RETRIES, ins={"after": dg.In(dg.Nothing)})
def check() -> None:
    """Check the new rows with the expectation suites."""
    ingest("check")


@dg.op(retry_policy=RETRIES)
def verify() -> None:
    """Count the rows of every batch."""
    ingest("verify")


@dg.op(retry_policy=RETRIES, ins={"after": dg.In(dg.Nothing)})
def maintain() -> None:
    """Compact small files, and delete what nobody needs any more."""
    ingest("maintain")


@dg.job
def oncelake() -> None:
    """The tables, up to the ends of their topics."""
    check(run())


@dg.job
def oncelake_nightly() -> None:
    """The proof, then the upkeep."""
    maintain(verify())


@dg.schedule(job=oncelake, cron_schedule="*/10 * * * *")
def every_ten_minutes(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Skip while a run is unfinished: of two runs of a table, the later one waits for the first or fences it."""
    if context.instance.get_runs(dg.RunsFilter(job_name=oncelake.name, statuses=UNFINISHED), limit=1):
        return dg.SkipReason("the previous run is not finished")
    return dg.RunRequest()


nightly = dg.ScheduleDefinition(job=oncelake_nightly, cron_schedule="45 3 * * *")

defs = dg.Definitions(jobs=[oncelake, oncelake_nightly], schedules=[every_ten_minutes, nightly])
