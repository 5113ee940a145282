"""`ingest metrics`: print or write the metrics of a lake, for jobs that end and for what a run cannot know."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli import options as o
from ingest.cli.app import app, print_error, print_json
from ingest.cli.status import local_contracts
from ingest.runtime.output import data_stream, err_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.contract.definition import Contract
    from ingest.kafka.kafka_options import KafkaOptions
    from ingest.observe.metrics.board import Board
    from ingest.observe.report.summary import Summary

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Replace this file (*.prom) in one step, for the textfile collector of node_exporter.", dir_okay=False),
]


@o.verb(app, "checkpoints", "bootstrap_servers")
def metrics(
    env: o.Environment,
    tables: o.Tables = None,
    out: Out = None,
    as_json: o.Json = False,
) -> None:
    """Print Prometheus metrics of the tables, without Spark. Covers status, totals of the ledger, quarantine, quality,
    proofs, files and hanging transactions. `ingest run --metrics` serves those of a run in progress.

    Example: ingest metrics --out /var/lib/node_exporter/oncelake.prom
    """
    from prometheus_client import generate_latest, write_to_textfile

    from ingest.observe.metrics.board import Board
    from ingest.observe.metrics.lake_metrics import measure
    from ingest.observe.report import HOURS_DEFAULT
    from ingest.observe.report.summary import summaries
    from ingest.runtime.errors import InvalidInput, most_severe

    if out is not None and out.suffix != ".prom":
        expected, remedy = "a name that ends in .prom: node_exporter reads no other.", "name a file such as oncelake.prom."
        raise InvalidInput("METRICS_FILE_NAME", f"--out {out}.", expected=expected, remedy=remedy)
    contracts = local_contracts(env, tables)
    board = Board("lake")
    found = summaries(contracts, env.lake, env.checkpoints, env.bootstrap_servers, HOURS_DEFAULT, now_s := time.time())
    for contract in contracts:
        board.at("oncelake_measured_timestamp_seconds", contract.name).set(now_s)
    for summary in found.tables:
        measure(board, summary)
        if summary.proof is not None and not summary.proof.sha256:
            err_line(f"note: no metrics of the proof of {summary.table}: this user cannot read {summary.proof.path}")
    for table, error in found.errors.items():
        board.error(table, error.code)
    _transactions(board, contracts, found.tables, env.kafka)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(out), board.registry)
    text = generate_latest(board.registry).decode()
    if as_json:
        rows = [{"table": name, "samples": samples} for name, samples in _samples(board, contracts).items()]
        print_json("metrics", ok=not found.errors, tables=rows, error=next(iter(found.errors.values()), None))
    elif out is None:
        data_stream().write(text)
    for error in () if as_json else found.errors.values():
        print_error(error)
    if found.errors:
        sys.exit(most_severe([error.exit_code for error in found.errors.values()]))


def _transactions(board: Board, contracts: Sequence[Contract], tables: Sequence[Summary], kafka: KafkaOptions) -> None:
    """Add the open transactions, if the broker answers. Without an answer their metrics are absent, and a note says why."""
    from ingest.kafka.broker_request import quiet
    from ingest.kafka.open_transactions import listed
    from ingest.observe.metrics.lake_metrics import measure_transactions
    from ingest.runtime.errors import IngestError

    quiet()
    refusals = (table.status.refusal for table in tables if table.status.next != "refuse")
    silent = next((refusal["code"] for refusal in refusals if refusal is not None and refusal["code"] != "TOPIC_UNKNOWN"), None)
    try:
        if silent is None:
            measure_transactions(board, {contract.name: contract.source for contract in contracts}, listed(kafka))
    except IngestError as error:
        silent = error.code
    if silent is not None:
        err_line(f"note: no metrics of transactions: the broker did not answer ({silent})")


def _samples(board: Board, contracts: Sequence[Contract]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {contract.name: [] for contract in contracts}
    for family in board.registry.collect():
        for sample in family.samples:
            table = f"{sample.labels.get('pipeline')}.{sample.labels.get('table')}"
            if table in found:
                more = {key: value for key, value in sample.labels.items() if key not in ("pipeline", "table")}
                found[table].append({"name": sample.name, **more, "value": sample.value})
    return found
