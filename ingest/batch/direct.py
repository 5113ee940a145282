"""Processes one micro-batch with the direct writer: the workers write the files, this process deduplicates and commits.

Spark's foreachBatch calls `process_direct`, which returns only after the commits of the batch are made. It keeps the promises of
`batch.process`: quarantine before target, one commit with the offsets, each event id once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.batch import staging
from ingest.batch.batch import BatchReport, Clock, Table, refuse_poisoned, report
from ingest.batch.batch_counts import BatchCounts, PartitionCounts
from ingest.batch.refused import quarantine_rows
from ingest.batch.staged import Conflicts, Staged
from ingest.batch.staging import STAGED, Stage
from ingest.contract.columns import event_id_columns, target_columns, target_fields
from ingest.contract.definition import Contract
from ingest.contract.sql_type import SqlType
from ingest.decode import rule_expression
from ingest.decode.arrow_rule import compile_rule
from ingest.decode.decoder import plan_of
from ingest.decode.rule_expression import ArrowRule
from ingest.decode.rule_refusal import RuleRaises, Untranslatable
from ingest.delta import data_file, statistics
from ingest.delta.batch_commit import FIRST_BATCH, Counts
from ingest.delta.data_file import StagedFile, sync, write_file
from ingest.delta.direct_fit import unfit
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.live_table import LiveTable
from ingest.delta.put import Operation, nothing_stored
from ingest.kafka.offsets import Planned, planned
from ingest.runtime import crash_points
from ingest.runtime.files import local_path

# Workers get these modules by value, as they get the decoder's.
for _module in (staging, data_file, statistics, rule_expression):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]

Decided = tuple[Operation, Sequence[Mapping[str, Any]]]


def refuse_unfit(contract: Contract) -> None:
    """Raises InvalidInput DIRECT_UNFIT for a contract that the direct writer does not know yet."""
    reasons = {
        "has the format raw": contract.source.format == "raw",
        "takes its event id from the record": contract.event_id.kind != "columns",
        "compares conflicts with the table": contract.conflicts == "table",
    }
    for reason, there in reasons.items():
        if there:
            raise unfit(contract.name, reason)
    arrow_rules(contract)


def arrow_rules(contract: Contract) -> tuple[tuple[str, ArrowRule], ...]:
    """The row rules by name, for workers. Raises InvalidInput DIRECT_UNFIT for one that needs Spark, also for one that can raise."""
    columns = tuple((field.name, field.type) for field in target_columns(contract))
    found = []
    for rule in contract.rules:
        try:
            found.append((rule.name, _compiled(rule.check, columns)))
        except Untranslatable as why:
            raise unfit(contract.name, f"has the row rule {rule.name} with {why}") from why
        except RuleRaises as why:
            raise unfit(contract.name, f"has the row rule {rule.name}, which can raise: {why}") from why
    return tuple(found)


@cache
def _compiled(check: str, columns: tuple[tuple[str, SqlType], ...]) -> ArrowRule:
    """Once a run, not once a batch: sqlglot parses the rule for milliseconds."""
    return compile_rule(check, dict(columns))


def process_direct(records: DataFrame, spark_number: int, table: Table, writer: DirectWriter) -> BatchReport:
    """Write a batch (`records` as Spark's Kafka source delivers them) into quarantine and target, exactly once."""
    clock = Clock()
    # 1 Offset range: from Spark's plan, because the offsets of the data have gaps.
    number = spark_number + FIRST_BATCH
    plan = planned(table.files, table.epoch.checkpoint, spark_number, table.starts)
    if table.read_before(plan.ranges):
        raise unfit(table.places.name, "reads offsets again that an earlier batch has read")
    crash_points.at("after_offset_log", number)

    # 2 Check that this run still owns the table, and that nobody has changed the tables since its last look.
    table.batch_commit(number, plan.ranges)

    # 3 Stage: one Spark job. Its result describes files that no commit names yet.
    staged = _stage(records, table, number, plan, writer.table(table.places.target))
    clock.lap("stage")
    kept: list[StagedFile] = []
    try:
        # 4 Later copies inside the batch.
        conflicts = staged.mark_copies()
        counts = _counts(staged, conflicts)
        table.still_ours()  # before any commit: the rows must come from this topic, and no other run may be active
        refuse_poisoned(counts, table.contract, number, plan)
        clock.lap("copies")

        # 5 Quarantine first: the target's commit then proves the quarantine's.
        if counts.failed:
            _quarantine(staged, conflicts, records, table, number, plan, writer)
        outcome = {p: Counts(each.read, each.failed, each.duplicates) for p, each in counts.counts.items()}
        crash_points.at("after_quarantine", number)
        clock.lap("quarantine")

        # 6 Target: event ids are compared with the snapshot that the commit names, and again if another commit comes first.
        def decide(target: LiveTable) -> Decided:
            kept[:] = staged.new_files(target)
            return _merge(table.contract, sum(each.rows for each in kept), outcome), [each.addition() for each in kept]

        crash_points.at("during_target", number, table.epoch.checkpoint)
        commit = writer.commit(table.epoch.look_back.target, partial(table.batch_commit, number, plan.ranges, outcome), decide)
    except BaseException as error:
        if not kept or nothing_stored(error):  # else a commit that names them may have been stored: VACUUM removes them if it was not
            staged.remove()
        raise
    staged.remove(kept)
    table.epoch.look_back.again()
    table.starts = {each.partition: each.end for each in plan.ranges}
    crash_points.at("after_target", number)
    clock.lap("target")

    table.refuse_lost()
    # 7 Ledger: a projection of the target's commits, which may lag but never lead.
    batch_commit = commit.batch_commit
    assert batch_commit is not None, "found by its BatchCommit"
    table.epoch.ledger.saw(commit, batch_commit)
    table.epoch.ledger.append_if_due(None)
    crash_points.at("after_ledger", number)
    clock.lap("ledger")
    return report(table, batch_commit, commit, clock)


def _stage(records: DataFrame, table: Table, number: int, plan: Planned, target: LiveTable) -> Staged:
    contract, folder = table.contract, str(local_path(target.path))
    schema: pa.Schema = to_arrow_schema(T.StructType(target_fields(contract)), timezone="UTC")
    assert target.state is not None, "the start created the table"
    # Somebody may have unset it: then no column has statistics, and every file is opened.
    listed = [name.strip() for name in target.state.properties.get("delta.dataSkippingStatsColumns", "").split(",")]
    with_statistics = tuple(name for name in listed if name in schema.names)
    micros = round(plan.planned_at.timestamp() * 1_000_000)
    constants = (("_ingested_at", micros), ("_epoch", table.epoch.writer.epoch), ("_batch", number))
    rules = arrow_rules(contract)
    stage = Stage(plan_of(contract), folder, schema, event_id_columns(contract), with_statistics, constants, rules)
    frame = records.select(
        F.col("key").alias("__key"),
        F.col("value").alias("__value"),
        # As text: Spark's Arrow writer measures every part of a nested column per record.
        F.to_json("headers").alias("__headers"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_kafka_timestamp"),
    )
    return Staged.of(contract, folder, schema, with_statistics, frame.mapInArrow(stage.rows, STAGED).toArrow())


def _counts(staged: Staged, conflicts: Conflicts) -> BatchCounts:
    rows, copies, differ = staged.by_partition(lost=False), staged.by_partition(lost=True), Counter(p for p, _ in conflicts)
    wrong = Counter(staged.refused["_partition"].to_pylist() if staged.refused is not None else ())
    counts = {p: PartitionCounts(rows[p] + wrong[p], wrong[p] + differ[p], copies[p] - differ[p]) for p in sorted({*rows, *wrong})}
    return BatchCounts(counts, {}, len(conflicts))


def _merge(contract: Contract, inserted: int, outcome: Mapping[int, Counts]) -> Operation:
    """What DESCRIBE HISTORY shows: a MERGE on the event id that only inserts. Its predicate has no values of rows."""
    condition = " AND ".join(f"(t.{name} = s.{name})" for name in event_id_columns(contract))
    inserts = json.dumps([{"actionType": "insert"}])
    parameters = {"predicate": json.dumps([condition]), "matchedPredicates": "[]", "notMatchedPredicates": inserts}
    metrics = {"numSourceRows": sum(each.offered for each in outcome.values()), "numTargetRowsInserted": inserted}
    metrics |= {"numTargetRowsUpdated": 0, "numTargetRowsDeleted": 0}
    return Operation("MERGE", {**parameters, "notMatchedBySourcePredicates": "[]"}, metrics)


def _quarantine(
    staged: Staged, conflicts: Conflicts, records: DataFrame, table: Table, number: int, plan: Planned, writer: DirectWriter
) -> None:
    origin, folder = table.epoch.writer, str(local_path(table.places.quarantine))
    same = {"topic": origin.topic.name, "topic_id": origin.topic.id, "contract_hash": origin.contract_hash, "epoch": origin.epoch}
    same |= {"batch": number, "state": "open", "state_changed_at": plan.planned_at, "state_by": "ingest run"}
    rows = quarantine_rows(staged, conflicts, records, same)
    file = write_file(folder, rows, ("partition", "offset", "epoch", "batch"))
    sync(folder, [file.path])
    operation = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"}, {"numFiles": 1, "numOutputRows": file.rows})
    still = partial(table.batch_commit, number, plan.ranges)
    writer.commit(table.epoch.look_back.quarantine, still, lambda _: (operation, [file.addition()]))
    table.epoch.look_back.again()
