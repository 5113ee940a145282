"""The pictures of `ingest report` for the README, of a made-up lake with a day of batches, in the browser that the tests use.

    PYTHONPATH=. .venv/bin/python scripts/report_images.py [--lake-only DIR] [--batches 1440] [--every 60] [--appends 60]

With --lake-only it makes the lake and stops: `ingest report --project DIR --lake DIR/lake` then shows it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ingest.contract.definition import load_contracts
from ingest.delta.batch_commit import Batch, BatchCommit, BatchId, Snapshot, Snapshots
from ingest.delta.posting import Key, Posting
from ingest.delta.table_definitions import LEDGER_FIELDS
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicId, TopicState
from ingest.ledger.ledger_line import DECIMALS, SCHEMA_VERSION
from ingest.observe.report.html_page import page
from ingest.observe.report.summary import Summaries, Summary, summary
from ingest.runtime.places import Places
from tests.integration import browser

PROJECT = Path(__file__).parents[1]
PARTITIONS = 3
NEWEST = 200
RESTARTS = (0.0, 0.31, 0.62)
CONTRACT = """\
pipeline: shop
table: {table}
source: {{topic: {table}, format: json}}
columns:
  - {{name: id, type: BIGINT, nullable: false}}
event_id: [id]
"""
TIME = pa.timestamp("us", "UTC")
LEDGER = to_arrow_schema(StructType(list(LEDGER_FIELDS)), timezone="UTC")
BROKEN = (
    ("malformed_json", "not one complete JSON object", b'{"id": 4711, "amount": 12.5'),
    ("missing_value", "id is missing", b'{"customer": "c-17", "status": "paid"}'),
    ("wrong_type", "id is a text, not a number", b'{"id": "<b>17</b>", "status": "paid"}'),
    ("empty", "the value has no bytes", b""),
)


def make_lake(folder: Path, table: str, batches: int, every_s: float, appends: int, seed: int) -> None:
    """Target, quarantine, ledger and quality of one table, with so many batches, `every_s` apart, the newest one now."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "tables" / f"{table}.yml").write_text(CONTRACT.format(table=table))
    places = Places(str(folder / "lake"), str(folder / "checkpoints"), "shop", table)
    draw = np.random.default_rng(seed)
    at = np.arange(batches)
    # More records by day than by night, and one backlog.
    load = (600 + 450 * np.sin(2 * np.pi * at / batches - 1.2)) * draw.normal(1, 0.08, batches)
    load[int(batches * 0.62) : int(batches * 0.62) + max(1, batches // 60)] *= 3.5
    took = 0.8 + load * every_s / 60 / 900 + draw.exponential(0.25, batches)
    committed = time.time() - every_s * (batches - 1 - at) + took
    starts = [int(batches * share) for share in RESTARTS]
    epoch = sum((at >= start).astype(int) for start in starts)
    number = at - np.array(starts)[epoch - 1] + 2
    read = np.maximum(1, load * every_s / 60 / PARTITIONS).astype(int)
    poison = (draw.random(batches) < 0.04).astype(int)
    duplicate = np.minimum(read - poison, draw.poisson(read * 0.02))
    duplicate[starts[1]] = (read - poison)[starts[1]]
    gap = draw.poisson(1, batches)
    ends = np.cumsum(read + gap)
    rows = {
        "epoch": epoch, "batch": number, "start_offset": ends - read - gap, "end_offset": ends, "records_read": read,
        "target_rows": read - poison - duplicate, "present": duplicate, "quarantine_rows": poison, "version": at,
        "statement_epoch": epoch, "statement_batch": number,
    }  # fmt: skip
    for piece in np.array_split(at, appends):
        parts = []
        for partition in range(PARTITIONS):
            columns: dict[str, Any] = {name: values[piece] for name, values in rows.items()}
            if partition:  # broken records are all in partition 0
                columns |= {
                    "quarantine_rows": np.zeros(len(piece), int),
                    "target_rows": columns["target_rows"] + columns["quarantine_rows"],
                }
            columns |= {"partition": np.full(len(piece), partition)}
            columns["committed_at"] = pa.array((committed[piece] * 1e6).astype("int64"), TIME)
            same = _same(table, "batch")
            made = [pa.array(columns[name]) if name in columns else pa.array([same[name]] * len(piece)) for name in LEDGER.names]
            parts.append(pa.Table.from_arrays([each.cast(kind) for each, kind in zip(made, LEDGER.types, strict=True)], schema=LEDGER))
        write_deltalake(places.ledger, pa.concat_tables(parts), mode="append")
    begins = pa.Table.from_pylist([_begin(table, n, start, committed[start]) for n, start in enumerate(starts, 1)], LEDGER)
    write_deltalake(places.ledger, begins, mode="append")
    whole = {**rows, "target_rows": PARTITIONS * (read - duplicate) - poison}
    older = {name: values[:-NEWEST] for name, values in whole.items()}
    if batches > NEWEST:
        _target(places, table, older, committed[:-NEWEST], took[:-NEWEST], draw)
    _target(places, table, {name: values[-NEWEST:] for name, values in whole.items()}, committed[-NEWEST:], took[-NEWEST:], draw)
    _quarantine(places, table, at[poison == 1], committed, epoch, number, ends)
    _quality(places, table, committed[-1], seed)


def _begin(table: str, epoch: int, start: int, committed_s: float) -> dict[str, Any]:
    at = {"epoch": epoch, "batch": 1, "statement_epoch": epoch, "statement_batch": 1, "committed_at": int(committed_s * 1e6)}
    return _same(table, "start" if epoch > 1 else "first") | at | {name: Decimal(0) for name in DECIMALS}


def _same(table: str, why: str) -> dict[str, Any]:
    """A line of the ledger with nothing in it."""
    texts = {"pipeline": "shop", "table": table, "topic": table, "topic_id": "t", "contract_hash": "h", "why": why, "writer": "w"}
    return dict.fromkeys(LEDGER.names, 0) | texts | {"schema_version": SCHEMA_VERSION, "of_table": "target", "leader_epoch": None}


def _target(places: Places, table: str, rows: dict[str, Any], committed: Any, took: Any, draw: Any) -> None:
    inserted = rows["target_rows"]
    batch = np.repeat(np.arange(len(inserted)), inserted)
    begun = committed - took
    waits = draw.gamma(2.0, 0.4, len(batch))
    columns = {
        "id": pa.array(np.arange(len(batch))), "_partition": pa.array(np.zeros(len(batch)), pa.int32()),
        "_offset": pa.array(np.arange(len(batch))), "_epoch": pa.array(rows["epoch"][batch], pa.int32()), "_batch": rows["batch"][batch],
        "_kafka_timestamp": pa.array(((begun[batch] - waits) * 1e6).astype("int64"), TIME),
        "_ingested_at": pa.array((begun[batch] * 1e6).astype("int64"), TIME),
    }  # fmt: skip
    id = BatchId(int(rows["epoch"][-1]), int(rows["batch"][-1]))
    end = int(rows["end_offset"][-1])
    keys = (Key(id.epoch, id.number, 0, partition) for partition in range(PARTITIONS))
    postings = tuple(Posting(key, "batch", OffsetRange(key.partition, end - 1, end)) for key in keys)
    at = Snapshot("", 0, "")
    commit = BatchCommit(Batch(), "shop", table, id, "w", Snapshots(at, at), "h", (TopicId(table, "t"),), postings)
    properties = CommitProperties({"userMetadata": commit.to_json()}, app_transactions=[Transaction(commit.app_id, id.txn_version)])
    write_deltalake(places.target, pa.table(columns), mode="append", commit_properties=properties)


def _quarantine(places: Places, table: str, at: Any, committed: Any, epoch: Any, number: Any, ends: Any) -> None:
    chosen = random.Random(7)
    rows = []
    for each in at:
        code, detail, value = chosen.choices(BROKEN, (5, 3, 2, 1))[0]
        row = {"topic": table, "topic_id": "t", "source": 0, "partition": 0, "offset": int(ends[each]) - 1, "value": value}
        row |= {"reason_code": code, "reason_detail": detail, "epoch": int(epoch[each]), "batch": int(number[each]), "state": "open"}
        rows.append({**row, "kafka_timestamp": int((committed[each] - 2) * 1e6)})
    types: dict[str, Any] = {
        "value": pa.binary(),
        "kafka_timestamp": TIME,
        **dict.fromkeys(("source", "offset", "epoch", "batch", "partition"), pa.int64()),
    }
    schema = pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
    write_deltalake(places.quarantine, pa.Table.from_pylist(rows, schema), mode="append")


def _quality(places: Places, table: str, newest_s: float, seed: int) -> None:
    rows = []
    for run in range(24):
        for number in range(12):
            bad = run in (9, 10) and number < (3 if seed % 2 else 1)
            row = {
                "run_id": f"run-{run:03}",
                "run_at": int((newest_s - 3600 * (23 - run)) * 1e6),
                "run_scope": "new",
                "version_to": run * 60,
            }
            severity = "critical" if number == 0 and seed % 2 else "warning"
            rows.append({**row, "severity": severity, "success": not bad, "exception": None, "page": None})
    types: dict[str, Any] = {"run_at": TIME, "version_to": pa.int64(), "success": pa.bool_()}
    write_deltalake(places.quality, pa.Table.from_pylist(rows, pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])))
    index = places.lake + f"/docs/shop/{table}/index.html"
    Path(index).parent.mkdir(parents=True, exist_ok=True)
    Path(index).write_text("Data Docs")
    proofs = Path(places.lake) / "proofs/shop" / table
    proofs.mkdir(parents=True, exist_ok=True)
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(newest_s - 5000))
    (proofs / "000001.json").write_text(json.dumps({"schema": "oncelake/proof/2", "made_at": made_at, "ok": True}))


def seen(folder: Path) -> list[Summary]:
    """The summaries as with a broker that is 37 records ahead, and a run at work."""
    found = []
    for contract in load_contracts(folder, []):
        places = Places(str(folder / "lake"), str(folder / "checkpoints"), contract.pipeline, contract.table)
        each = summary(contract, places, (TopicState(TopicId("", ""), {}),), 24)
        running = "host ingest-1, JVM process 212, Python process 187"
        status = replace(each.status, lag=37, running=running, refusal=None, next="continue where the newest batch ended")
        found.append(replace(each, status=status))
    return found


def main() -> None:
    """Make the lake, and the pictures unless --lake-only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake-only", type=Path)
    parser.add_argument("--batches", type=int, default=1440)
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--appends", type=int, default=60)
    chosen = parser.parse_args()
    folder = chosen.lake_only or Path(tempfile.mkdtemp(prefix="report-images-"))
    for seed, table in enumerate(("orders", "payments"), 1):
        make_lake(folder, table, chosen.batches, chosen.every, chosen.appends, seed)
        DeltaTable(str(folder / "lake/shop" / table / "ledger")).create_checkpoint()
    if chosen.lake_only:
        return
    found = seen(folder)
    document = page(Summaries(found[0].status.last_commit or "", tuple(found), {}), "lake", 24, lambda each: "docs/index.html")
    file = folder / "report.html"
    file.write_text(document, encoding="utf-8")
    command = browser.find()
    assert command is not None, "no browser: scripts/browser installs one"
    images = PROJECT / "docs" / "images"
    images.mkdir(exist_ok=True)
    with browser.Browser(command) as chromium:
        for scheme in ("light", "dark"):
            chromium.emulate(width=1100, height=1180, scheme=scheme)
            chromium.open(file)
            chromium.screenshot(images / f"report-{scheme}.png", whole=False)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
