"""A chaos run: rounds until the time is up, each with its own broker and lake, each ended by the oracle's verdict.

A run has rounds because the oracle's memory and its counts at every version grow with a round's records and batches.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ingest.contract.definition import Contract
from ingest.lab.broker.embedded_broker import Broker
from ingest.lab.chaos import clock
from ingest.lab.chaos.chaos_events import Bodies, bodies, compared_columns, refuse_unfit, refused_kinds
from ingest.lab.chaos.disk import small_disk
from ingest.lab.chaos.guard import Guard, clear, marked
from ingest.lab.chaos.injected_faults import inject
from ingest.lab.chaos.scene import Say, Scene, SceneCounts
from ingest.lab.chaos.schedule import ScheduledFault, schedule
from ingest.lab.interrupt import interrupted_by
from ingest.lab.oracle.judge import JudgedRun, OracleVerdict, judge
from ingest.lab.oracle.sources import read_kafka
from ingest.lab.proxy import Proxy
from ingest.lab.worker import MARK
from ingest.runtime.crash_points import SCRATCH

ROUND_S: Final = 180.0
BATCH_RECORDS: Final = 30_000
# The oracle's plain consumer reads a million records in about a minute.
READ_WITHIN_S: Final = 900.0


@dataclass(frozen=True)
class Options:
    """The options of a run; `rate` is the producer's records per second, 0 for as many as it can."""

    contracts: Sequence[Contract]
    minutes: float
    seed: int
    faults: tuple[str, ...]
    rate: int
    folder: Path | None = None
    samples: Path | None = None


@dataclass
class ChaosReport:
    """The result of a run.

    `seconds` is the whole time, `dealt_s` the time in which faults were injected. `left_out` has the faults that this machine does not
    allow, with the reasons. `folder` is set, and kept on disk, if the run is not ok. `broken_off`: Ctrl-C or a signal ended the run, so
    the report contains only the rounds that had been judged by then.
    """

    options: Options
    counts: SceneCounts = field(default_factory=SceneCounts)
    tables: dict[str, SceneCounts] = field(default_factory=dict)
    rounds: int = 0
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    dealt_s: float = 0.0
    folder: Path | None = None
    broken_off: bool = False

    @property
    def ok(self) -> bool:
        """Whether neither the oracle nor the run itself has findings."""
        return not self.findings

    def add_round(self, number: int, dealt_s: float, scene: Scene, tables: Mapping[str, SceneCounts], notes: Sequence[str]) -> None:
        """Add a finished round in one step, so that an interrupted round leaves nothing in the report."""
        self.dealt_s += dealt_s
        self.counts.add(scene.counts)
        for name, counts in tables.items():
            self.tables.setdefault(name, SceneCounts()).add(counts)
        self.notes += [f"round {number}: {note}" for note in notes]
        self.findings += [f"round {number}: {finding}" for finding in scene.findings]


def run(options: Options, say: Say) -> ChaosReport:
    """Run all rounds; `say(who, what)` reports progress. Only the scratch folder is left behind, and only if there are findings.

    If it is interrupted (Ctrl-C, SIGTERM, SIGHUP), it returns the report of the rounds judged so far; in the first round it raises
    KeyboardInterrupt. An error of chaos itself during a round is a finding.

    Raises InvalidInput CHAOS_CONTRACT and CHAOS_SAMPLE, and the errors of Broker.start.
    """
    for contract in options.contracts:
        refuse_unfit(contract)
    began = time.monotonic()
    report = ChaosReport(options)
    pools = [bodies(contract, str(options.seed), options.samples) for contract in options.contracts]
    for pool in pools:
        say("chaos", f"events of {pool.contract.name} come from {pool.origin}")
    with ExitStack() as stack:
        stack.enter_context(interrupted_by(signal.SIGTERM, signal.SIGHUP))
        folder = _folder(options.folder)
        mark = os.environ[MARK] = uuid.uuid4().hex
        stack.callback(os.environ.pop, MARK)
        guard = Guard(mark, folder)
        stack.callback(guard.dismiss)
        try:
            _rounds(report, folder, pools, guard, mark, say)
        except BaseException as error:
            # A process that was just starting when the interrupt arrived is known only by the mark.
            clear(mark, str(folder), besides=guard.pid)
            if not (isinstance(error, KeyboardInterrupt) and report.rounds):
                raise
            report.broken_off = True
        if report.ok:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            report.folder = folder
    report.seconds = time.monotonic() - began
    return report


def _rounds(report: ChaosReport, folder: Path, pools: Sequence[Bodies], guard: Guard, mark: str, say: Say) -> None:
    left_s = report.options.minutes * 60
    while left_s > 0 and report.ok:
        number = report.rounds + 1
        seconds = left_s if left_s < 1.5 * ROUND_S else ROUND_S
        left_s -= seconds
        here = folder / f"round-{number}"
        here.mkdir()
        _round(report, here, pools, number, seconds, say)
        report.rounds = number
        if strays := [f"{p.pid} {p.name()}" for p in marked(mark) if p.pid != guard.pid]:
            report.findings.append(f"processes are left after round {number}: {', '.join(strays)}")
        if report.ok:
            shutil.rmtree(here)


def _round(report: ChaosReport, folder: Path, pools: Sequence[Bodies], number: int, seconds: float, say: Say) -> None:
    options = report.options
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk")) if "disk-full" in options.faults else None
        library = clock.library(folder) if "clock" in options.faults else None
        faults = _allowed(report, has_disk=disk is not None, has_clock=library is not None)
        broker = stack.enter_context(Broker(folder / "broker"))
        proxy = stack.enter_context(Proxy(broker.bootstrap_servers))
        settings = {
            "samples": str(options.samples.absolute()) if options.samples else None,
            "seed": str(options.seed),
            "rate": options.rate,
        }
        scene = Scene(
            folder, options.contracts, broker, proxy, settings, say, batch_records=BATCH_RECORDS, disk=disk, clock_library=library
        )
        stack.callback(scene.close)
        if disk is not None:
            stack.callback(_keep, scene, folder)
        (scene.lake / SCRATCH).touch()
        say("chaos", f"round {number}: {seconds:.0f} s of {', '.join(faults)}")
        try:
            dealt_s = _deal(scene, schedule(f"{options.seed}/{number}", faults), seconds, say)
            say("chaos", "no more faults; reading everything to the end")
            scene.finish()
            notes = ["not judged by the oracle: the topics were not read to the end"]
            tables: dict[str, SceneCounts] = {}
            if scene.read_to_the_end:
                tables, notes = _judge(scene, pools, say)
            report.add_round(number, dealt_s, scene, tables, notes)
        except Exception as error:  # raising it would lose the results of earlier rounds
            say("chaos", traceback.format_exc())
            scene.findings.append(f"chaos itself ended: {type(error).__name__}: {error}")
            report.findings.append(f"round {number}: {scene.findings[-1]}")
        scene.close()


def _deal(scene: Scene, faults: Iterable[ScheduledFault], seconds: float, say: Say) -> float:
    """Inject faults until the time is up or there is a finding; returns the duration in seconds."""
    began = time.monotonic()
    for fault in faults:
        if time.monotonic() > began + seconds or scene.findings:
            break
        inject(scene, fault)
        say(fault.name, f"fault {fault.number}; {scene.batches_done()} batches done, {scene.counts.starts} starts so far")
    return time.monotonic() - began


def _keep(scene: Scene, folder: Path) -> None:
    """If there are findings, copy the content of the small disk next to it, because unmounting deletes it."""
    if scene.findings:
        shutil.copytree(scene.home, folder / "disk-kept", dirs_exist_ok=True)


def _judge(scene: Scene, pools: Sequence[Bodies], say: Say) -> tuple[dict[str, SceneCounts], list[str]]:
    """Let the oracle judge each table; returns the counts by table and the oracle's notes."""
    tables: dict[str, SceneCounts] = {}
    notes: list[str] = []
    contracts = {contract.name: contract for contract in scene.contracts}
    for pool in pools:
        contract = contracts[pool.contract.name]
        say("oracle", f"reads {contract.name}: its topics, target, quarantine, ledger and every version")
        try:
            verdict, counts = _verdict(scene, pool, contract)
        except Exception as error:  # raising it would lose the verdicts on the other tables; a finding keeps them
            scene.findings.append(f"the oracle cannot judge {contract.name}: {type(error).__name__}: {error}")
            continue
        say("oracle", f"{contract.name}: {counts.records:,} records, {counts.batches} batches, {len(verdict.findings)} findings")
        scene.findings += verdict.findings
        notes += verdict.notes
        tables[contract.name] = counts
        scene.counts.records += counts.records
        scene.counts.batches += counts.batches
    return tables, notes


def _verdict(scene: Scene, pool: Bodies, contract: Contract) -> tuple[OracleVerdict, SceneCounts]:
    columns, payload, topics = contract.event_id.columns, compared_columns(contract), scene.topics[contract.name]
    asked = JudgedRun(
        scene.lake,
        contract.pipeline,
        contract.table,
        tuple(topics),
        columns,
        payload,
        tuple(path for path in scene.manifests if path.exists()),
        excused_ids=frozenset(scene.excused[contract.name]),
        own_versions=frozenset(scene.own_versions[contract.name]),
        # An event made from the column types may break a rule, and only Spark could tell which events do.
        valid_in_quarantine=bool(contract.rules) and pool.origin == "the column types",
        refused_kinds=refused_kinds(contract),
    )
    kafka = [read_kafka(scene.broker.bootstrap_servers, topic, columns, payload, timeout_s=READ_WITHIN_S) for topic in topics]
    verdict = judge(asked, *kafka)
    batches = scene.batches_done_of(contract)
    return verdict, SceneCounts(records=sum(len(view.records) for view in kafka), batches=batches)


def _allowed(report: ChaosReport, *, has_disk: bool, has_clock: bool) -> tuple[str, ...]:
    """The chosen faults without those that this machine does not allow."""
    asked = report.options.faults
    if "disk-full" in asked and not has_disk:
        report.left_out["disk-full"] = "cannot mount a tmpfs in a private mount namespace (needs Linux and root or CAP_SYS_ADMIN)"
    if "clock" in asked and not has_clock:
        report.left_out["clock"] = "needs Linux and a C compiler (cc)"
    return tuple(fault for fault in asked if fault not in report.left_out)


def _folder(asked: Path | None) -> Path:
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="ingest-chaos-", dir=asked)).absolute()
