"""Platform probe: does this runtime skip a pair that it has committed, as the promises need it to? (docs/contract.md, preflight)

The versions of `ingest/jars.lock` with the pinned pyspark are known: the tests run on them. Any other runtime (Databricks, a
cluster's own Spark) commits one pair twice to a scratch table, through the module that commits batches, before its first run.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest import jars
from ingest.contract import Contract
from ingest.errors import IngestError, Unfit
from ingest.files import files_of, is_local
from ingest.places import Places
from ingest.stream import commit
from ingest.stream.columns import target_fields
from ingest.stream.commit import AlreadyWritten, Written
from ingest.stream.delta_log import DeltaLog
from ingest.stream.ledger import append_rows
from ingest.stream.ledger_row import SCHEMA_VERSION, LedgerRow
from ingest.stream.mark import Counts, Mark
from ingest.stream.offsets import BatchId, OffsetRange

PYSPARK = "4.0.1"
CONTRACT = {"pipeline": "oncelake", "table": "probe", "source": {"topic": "probe", "format": "raw"}, "event_id": "position"}


def ensure(session: SparkSession, lake: str) -> None:
    """Probe an unknown runtime once, and remember it in the cache folder. Raises Unfit PLATFORM_UNFIT."""
    runtime = name(session)
    if runtime == known():
        return
    kept = jars.cache_folder() / "platforms.json"
    fit = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    if runtime in fit:
        return
    probe(session, lake)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(sorted({*fit, runtime})), encoding="utf-8")


def known() -> str:
    """The runtime that the tests run on."""
    delta = next(jar.version for jar in jars.locked(jars.JarSet.SPARK) if jar.name.startswith("delta-spark"))
    return f"Spark {PYSPARK}, Delta {delta}"


def name(session: SparkSession) -> str:
    """The runtime at hand."""
    databricks = os.environ.get("DATABRICKS_RUNTIME_VERSION")
    if databricks:
        return f"Databricks Runtime {databricks}, Spark {session.version}"
    try:
        constants = getattr(session.sparkContext._jvm.io.delta, "package$")  # type: ignore[union-attr]
        delta = str(getattr(constants, "MODULE$").VERSION())
    except Exception:  # Spark Connect has no JVM at hand
        return f"Spark {session.version} without a JVM"
    return f"Spark {session.version}, Delta {delta}"


def probe(session: SparkSession, lake: str) -> str:
    """Commit a pair twice by MERGE and by append, to tables that are removed again; returns what was seen. Raises Unfit PLATFORM_UNFIT."""
    root = f"{lake}/.probe-{uuid.uuid4().hex}"
    places = Places(root, root, "oncelake", "probe")
    contract = Contract.model_validate(CONTRACT)
    log, ledger = (DeltaLog(files_of(places.lake, session), path) for path in (places.target, places.ledger))
    try:
        commit.create_tables(session, contract, places)
        mark = Mark(
            "oncelake", "probe", BatchId(str(uuid.uuid4()), 1), 0, contract.hash, "probe", "", (OffsetRange(0, 0, 1),), ((0, Counts(1)),)
        )
        outcomes = [commit.merge_target(_row(session, contract, offset), contract, log, mark, {}) for offset in (0, 1)]
        rows = session.read.format("delta").load(places.target).count()
        _append(session, ledger, mark)
        _append(session, ledger, mark)
        appended = session.read.format("delta").load(places.ledger).count()
        seen = f"{' then '.join(type(outcome).__name__ for outcome in outcomes)}, {rows} row merged, {appended} row appended"
        fit = [type(outcome) for outcome in outcomes] == [Written, AlreadyWritten] and (rows, appended) == (1, 1)
    except IngestError as error:  # the module that commits found no commit with its pair
        seen, fit = f"{error.code}: {error.found}", False
    finally:
        if is_local(lake):
            shutil.rmtree(Path(places.lake), ignore_errors=True)
    seen = f"{name(session)}: {seen}"
    if not fit:
        raise Unfit(
            "PLATFORM_UNFIT",
            f"a pair (txnAppId, txnVersion) committed twice was not skipped the second time ({seen}).",
            expected="one row, and the second statement skipped: the promises stand on that.",
            remedy=f"use {known()} or a runtime that passes `ingest doctor --spark`.",
        )
    return seen


def _row(session: SparkSession, contract: Contract, offset: int) -> DataFrame:
    now = F.lit(datetime.now(UTC))
    values = {"_topic": F.lit("probe"), "_topic_id": F.lit(""), "_partition": F.lit(0), "_offset": F.lit(offset), "_ingested_at": now}
    fields = target_fields(contract)
    return session.range(1).select(*(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))


def _append(session: SparkSession, log: DeltaLog, mark: Mark) -> None:
    head = (SCHEMA_VERSION, "batch", "oncelake", "probe", 0, mark.id.query_id, 1, "probe", "", 0, 0, 1)
    append_rows(session, [LedgerRow(*head, 1, 1, 0, 0, 0, 0, 1, mark.contract_hash, datetime.now(UTC))], log, mark)
