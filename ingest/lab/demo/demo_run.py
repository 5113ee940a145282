"""The demo: one broker, one producer, and two pipelines that read the same topics and lose the same processes and files."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ingest.contract.definition import Contract, load_contracts
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.demo.demo_folder import run_folder, shown
from ingest.lab.demo.demo_pipeline import Name, Pipeline
from ingest.lab.demo.demo_quality import METHOD, answer, send_odd
from ingest.lab.demo.demo_sent import Outcome, Sent, ids_of, measure, quarantined_of, read_manifest
from ingest.lab.demo.story import Say
from ingest.lab.interrupt import apart, interrupted_by, uninterrupted
from ingest.lab.samples.sample_producer import Produced, produce_sample
from ingest.lab.samples.shop import ORDERS, PAYMENTS
from ingest.lab.worker import Worker
from ingest.runtime.errors import InvalidInput

TABLES = (ORDERS, PAYMENTS)
PARTITIONS = 3
POISON = 50
# Two micro-batches of orders and one of payments: each further batch and start would cost seconds.
BATCHES = 2
POLL_S = 0.1


@dataclass(frozen=True)
class DemoResult:
    """One pipeline's outcome for one table."""

    table: str
    pipeline: Name
    outcome: Outcome


@dataclass
class DemoReport:
    """All that a demo measured. `seconds` are by phase, in the order in which they began; `answer` is a command and its output."""

    folder: Path
    produced: Produced
    sent: dict[str, Sent]
    results: list[DemoResult]
    verify_exit: int
    verify_output: list[str]
    seconds: dict[str, float]
    pipelines: dict[Name, Pipeline]
    project: Path
    answer: tuple[str, list[str]]

    def sent_to(self, table: str) -> Sent:
        """The events sent for `table` (`pipeline.table`)."""
        contracts = self.pipelines["oncelake"].contracts
        return self.sent[next(contract.source.topic for contract in contracts if contract.name == table)]

    @property
    def ok(self) -> bool:
        """Whether Oncelake kept its promise: verify balances, and the tables hold every committed event once and nothing else."""
        return self.verify_exit == 0 and all(result.outcome.exact for result in self.results if result.pipeline == "oncelake")


def run(root: Path, project: Path, events: int, seed: int, say: Say) -> DemoReport:
    """Run the demo in a new folder below `root`. All its processes have ended when it returns or raises.

    Raises the errors of Broker.start, produce_sample and load_contracts, and RunStopped DEMO_FAILED for a pipeline that ends in
    another way than planned.
    """
    contracts = _contracts(project)
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        stack.enter_context(interrupted_by(signal.SIGTERM, signal.SIGHUP))
        folder = stack.enter_context(run_folder(root.absolute()))
        say("demo", "oncelake and a pipeline by hand (append in foreachBatch) read the same topics")
        with _timed(seconds, "broker"):
            broker = stack.enter_context(Broker(folder / "broker"))
            for contract in contracts:
                apart(partial(broker.create_topic, contract.source.topic, PARTITIONS))
        say("broker", f"Kafka answers at {broker.bootstrap_servers}; files: {shown(folder)}")
        with _timed(seconds, "producer"):
            produced = apart(lambda: _produce(broker, contracts, events, seed, folder / "manifest.jsonl", say))
            payments = next(contract.source.topic for contract in contracts if contract.table == PAYMENTS)
            odd = apart(lambda: send_odd(broker.bootstrap_servers, payments))
            say("producer", f"{len(odd)} payments by {METHOD!r}: valid by the contract, wrong by expectations/payments.json", detail=True)
        cap = max(1, events // BATCHES)
        names: tuple[Name, Name] = ("oncelake", "by hand")
        pipelines = {
            name: Pipeline(name, folder / name.replace(" ", "_"), contracts, project.absolute(), broker.bootstrap_servers, cap, say)
            for name in names
        }
        with _timed(seconds, "pipelines"):
            verify_exit, verify_output = _race(pipelines, say, stack)
        with _timed(seconds, "counting"):
            sent = read_manifest(folder / "manifest.jsonl")
            sent[payments].ids |= odd
            results = [_result(contract, pipeline, sent) for contract in contracts for pipeline in pipelines.values()]
            answered = answer(pipelines["oncelake"])
        with _timed(seconds, "stopping"):
            for pipeline in pipelines.values():
                shutil.rmtree(pipeline.folder / "tmp", ignore_errors=True)
            broker.stop()
    return DemoReport(folder, produced, sent, results, verify_exit, verify_output, seconds, pipelines, project, answered)


def _contracts(project: Path) -> tuple[Contract, ...]:
    contracts = load_contracts(project, TABLES)
    for contract in contracts:
        if contract.event_id.kind != "columns" or len(contract.event_id.columns) != 1 or not contract.source.topic:
            raise InvalidInput(
                "DEMO_CONTRACT",
                f"the contract {contract.name} reads several topics, or its event id is not the one column that the sample events have.",
                expected="the contracts of orders and payments of this repository.",
                remedy="run the demo with --project on a fresh clone of the repository.",
            )
    return contracts


def _produce(broker: Broker, contracts: Sequence[Contract], events: int, seed: int, manifest: Path, say: Say) -> Produced:
    topics = {contract.table: contract.source.topic for contract in contracts}
    reported_at = [time.monotonic()]

    def progress(records: int) -> None:
        if time.monotonic() - reported_at[0] >= 4:
            reported_at[0] = time.monotonic()
            say("producer", f"{records:,} records are committed", detail=True)

    produced = produce_sample(
        broker.bootstrap_servers, events=events, manifest=manifest, poison=POISON, seed=seed, topics=topics, progress=progress
    )
    say(
        "producer",
        f"{produced.events:,} events, {produced.retries:,} sent twice; {produced.aborted_records:,} aborted records, "
        f"{produced.poison} broken ones",
    )
    return produced


def _race(pipelines: dict[Name, Pipeline], say: Say, stack: ExitStack) -> tuple[int, list[str]]:
    """Run both pipelines side by side, which keeps two cores busy, and verify as soon as ours has read everything."""
    for pipeline in pipelines.values():
        stack.callback(pipeline.end)
    verify: Worker | None = None
    while verify is None or verify.poll() is None or not all(pipeline.done for pipeline in pipelines.values()):
        for pipeline in pipelines.values():
            pipeline.step()
        if verify is None and pipelines["oncelake"].done:
            say("verify", "`ingest verify` counts Oncelake's tables", detail=True)
            with uninterrupted():
                verify = pipelines["oncelake"].verify()
                stack.callback(verify.kill)
        time.sleep(POLL_S)
    return verify.poll() or 0, verify.lines()


def _result(contract: Contract, pipeline: Pipeline, sent: dict[str, Sent]) -> DemoResult:
    places = pipeline.places(contract)
    ids = ids_of(Path(places.target), contract.event_id.columns[0])
    return DemoResult(contract.name, pipeline.name, measure(sent[contract.source.topic], ids, quarantined_of(Path(places.quarantine))))


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[phase] = time.monotonic() - began
