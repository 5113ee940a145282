"""Platform probe: checks that this runtime fences an earlier writer, as the guarantees require (I8).

The versions in `ingest/runtime/jars.lock` with the pinned pyspark are known, because the tests run on them. Any other runtime (Databricks,
a cluster's own Spark) is probed before its first run. The probe commits a higher and then a lower transaction id to a scratch table, by
append and by MERGE. It also commits a higher one while a MERGE with a lower one is in flight.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.contract.columns import target_fields
from ingest.contract.definition import Contract
from ingest.delta import writer
from ingest.delta.batch_commit import FIRST_BATCH, Batch, BatchCommit, BatchId, Snapshot, Snapshots
from ingest.delta.delta_log import DeltaLog
from ingest.kafka.topic_state import TopicId
from ingest.runtime import jars
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import IngestError, InvalidEnvironment
from ingest.runtime.files import files_of
from ingest.runtime.places import Places

# Longer than an append takes in a JVM that has just started.
IN_FLIGHT_S = 5
# Stores on which Delta itself cannot create a file exclusively.
SHARED_COMMITS = ("s3", "s3a", "s3n")
# Spark releases, by minor version, that the tests run on (4.2) or ran on before (4.0).
TESTED = {"4.2": "4.2.0", "4.0": "4.0.1"}
CONTRACT = {"pipeline": "oncelake", "table": "probe", "source": {"topic": "probe", "format": "raw"}, "event_id": "position"}


def ensure(session: SparkSession, lake: str) -> None:
    """Refuse a store whose commits are not exclusive. Probe an unknown runtime once, and remember it in the cache folder.

    Raises InvalidEnvironment PLATFORM_UNFIT.
    """
    _refuse_store(session, lake)
    runtime = name(session)
    if runtime in known():
        return
    kept = jars.cache_folder() / "platforms.json"
    try:
        fit = [str(each) for each in read_json(kept.read_bytes())]
    except (OSError, ValueError, TypeError):  # a cache: without it, the platform is probed again
        fit = []
    if runtime in fit:
        return
    probe(session, lake)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(sorted({*fit, runtime})), encoding="utf-8")


def _refuse_store(session: SparkSession, lake: str) -> None:
    """Refuse S3 without an exclusive LogStore: two drivers could write the same version of a log (Delta's storage configuration)."""
    scheme = urlparse(lake).scheme
    if scheme not in SHARED_COMMITS or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    keys = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    stores = [store for key in keys if (store := session.conf.get(key, "")) and not store.endswith("S3SingleDriverLogStore")]
    if not stores:
        raise InvalidEnvironment(
            "PLATFORM_UNFIT",
            f"{lake} is on {scheme}://, where two drivers can write the same version of a Delta log.",
            expected="a LogStore whose commits are exclusive: an earlier run is fenced by the table's own log.",
            remedy=f"set {keys[0]} to io.delta.storage.S3DynamoDBLogStore (delta-storage-s3-dynamodb), or use another store.",
        )


def known() -> list[str]:
    """The runtimes that the tests run on, or ran on before."""
    pinned = {line: jars.locked(jars.JarSet.SPARK, line) for line in TESTED}
    delta = {line: next(jar.version for jar in found if jar.name.startswith("delta-spark")) for line, found in pinned.items()}
    return [f"Spark {spark}, Delta {delta[line]}" for line, spark in TESTED.items()]


def name(session: SparkSession) -> str:
    """Name and versions of the current runtime."""
    databricks = os.environ.get("DATABRICKS_RUNTIME_VERSION")
    if databricks:
        return f"Databricks Runtime {databricks}, Spark {session.version}"
    try:
        constants = getattr(session.sparkContext._jvm.io.delta, "package$")  # type: ignore[union-attr]
        delta = str(getattr(constants, "MODULE$").VERSION())
    except Exception:  # Spark Connect gives no access to a JVM
        return f"Spark {session.version} without a JVM"
    return f"Spark {session.version}, Delta {delta}"


def probe(session: SparkSession, lake: str) -> str:
    """Test the fence on scratch tables and remove them; returns a summary of the outcomes. Raises InvalidEnvironment PLATFORM_UNFIT."""
    root = f"{lake}/.probe-{uuid.uuid4().hex}"
    places = Places(root, root, "oncelake", "probe")
    contract = Contract.model_validate(CONTRACT)
    log = DeltaLog(files_of(places.lake, session), places.target)
    rows = _row(session, contract)
    seen = {}
    try:
        writer.create_tables(session, contract, places)
        seen["a first MERGE"] = _merged(rows, contract, log, _batch_commit(contract, 3))
        seen["a later append"] = _fenced(session, contract, log, 5)
        seen["an earlier append"] = _fenced(session, contract, log, 4)
        seen["an earlier MERGE"] = _merged(rows, contract, log, _batch_commit(contract, 4))
        seen["a MERGE in flight"] = _in_flight(session, rows, contract, log)
    finally:
        files_of(places.lake, session).remove(root)
    expected = dict(zip(seen, ("committed", "committed", "skipped", "skipped", "skipped"), strict=True))
    reported = f"{name(session)}: {', '.join(f'{what} was {how}' for what, how in seen.items())}"
    if seen != expected:
        raise InvalidEnvironment(
            "PLATFORM_UNFIT",
            f"an earlier transaction id was not fenced by a later one ({reported}).",
            expected="an earlier statement is skipped, and one in flight fails: the guarantees depend on that.",
            remedy=f"use {known()[0]} or a runtime that passes `ingest doctor --spark`.",
        )
    return reported


def _in_flight(session: SparkSession, rows: DataFrame, contract: Contract, log: DeltaLog) -> str:
    """The outcome of a MERGE whose source is being read while a later epoch commits."""
    slow = F.udf(_slowly, "bigint")
    source = rows.withColumn("_offset", slow(F.col("_offset")))
    with ThreadPoolExecutor(max_workers=1) as pool:
        merging = pool.submit(_merged, source, contract, log, _batch_commit(contract, 6))
        tracker = session.sparkContext.statusTracker()
        while not tracker.getActiveStageIds() and not merging.done():
            time.sleep(0.02)
        fence = writer.fence(session.newSession(), log, _batch_commit(contract, 7))
        outcome = merging.result()
    last = [each.batch_commit.id.epoch for each in log.newest_first() if each.batch_commit is not None][:2]
    return "over too soon" if fence is not None and last == [7, 6] else outcome


def _slowly(offset: int) -> int:
    time.sleep(IN_FLIGHT_S)
    return offset


def _fenced(session: SparkSession, contract: Contract, log: DeltaLog, epoch: int) -> str:
    return "skipped" if writer.fence(session, log, _batch_commit(contract, epoch)) is None else "committed"


def _merged(rows: DataFrame, contract: Contract, log: DeltaLog, batch_commit: BatchCommit) -> str:
    try:
        writer.merge_target(rows, contract, log, {}, lambda: batch_commit)
    except IngestError as error:
        return "skipped" if error.code == "FENCED" else error.code
    return "committed"


def _batch_commit(contract: Contract, epoch: int) -> BatchCommit:
    no_snapshot = Snapshot("", 0, "")
    snapshots = Snapshots(no_snapshot, no_snapshot)
    id = BatchId(epoch, FIRST_BATCH)
    return BatchCommit(Batch(), "oncelake", "probe", id, uuid.uuid4().hex, snapshots, contract.hash, (TopicId("probe", ""),))


def _row(session: SparkSession, contract: Contract) -> DataFrame:
    """A frame with one event."""
    now = F.lit(datetime.now(UTC))
    values = {
        "_topic_id": F.lit(""),
        "_source": F.lit(0),
        "_partition": F.lit(0),
        "_offset": F.lit(0),
        "_ingested_at": now,
        "_epoch": F.lit(0),
        "_batch": F.lit(0),
    }
    fields = target_fields(contract)
    return session.range(1).select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))
