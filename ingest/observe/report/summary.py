"""The summary of a table that page, JSON, metrics and alerts share: its status, its figures, its quarantine, its quality, its proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.contract.definition import Contract
from ingest.delta.delta_log import Logs
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import Answer, answers
from ingest.ledger.projection import unwritten
from ingest.observe.report import HOURS_DEFAULT
from ingest.observe.report.evidence import LastProof, QualityRun, docs_index, last_proof, quality_runs
from ingest.observe.report.ledger_figures import LedgerFigures, LedgerReader, iso
from ingest.observe.report.open_tables import OpenTables, Stored
from ingest.observe.report.quarantine_reasons import Reason, quarantine_reasons
from ingest.observe.report.recent_batches import RecentBatches, recent_batches
from ingest.observe.table_status import Status, status_of
from ingest.quality.audited_version import AuditState, audit_state
from ingest.recovery.state_reader import read_start_state
from ingest.run.lock_file import holder
from ingest.runtime.errors import IngestError
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

# More batches than this in the log but not in the ledger are counted, not summed up: the next run adds them to the ledger.
LATE_MAX = 1_000


@dataclass(frozen=True)
class Summary:
    """One table. Times are UTC in ISO 8601.

    `late` is the number of batches after the ledger's newest one; the figures contain them unless `late_left_out`. `recent` is
    None for a table without rows. `docs` is the index page of the Data Docs, `proof` None if there is no proof file. `audit` is the
    audited version, and what holds it back. `samples_hidden`: the contract has sensitive columns, so no sample shows a value.
    """

    table: str
    status: Status
    figures: LedgerFigures
    late: int
    late_left_out: bool
    recent: RecentBatches | None
    quarantine: tuple[Reason, ...]
    samples_hidden: bool
    quality: tuple[QualityRun, ...]
    docs: Path | None
    proof: LastProof | None
    audit: AuditState
    stored: tuple[Stored, ...]

    @property
    def quarantined_open(self) -> int:
        """The number of quarantined records that nobody has replayed or dropped."""
        return sum(reason.open for reason in self.quarantine)

    @property
    def rows(self) -> int:
        """The number of rows in the target."""
        return next((each.rows for each in self.stored if each.kind == "target"), 0)

    def as_dict(self) -> dict[str, Any]:
        """The table's entry in the JSON document."""
        return asdict(self)


@dataclass(frozen=True)
class Summaries:
    """The summaries of some tables at one moment, and the errors of the others, by `pipeline.table`."""

    made_at: str
    tables: tuple[Summary, ...]
    errors: Mapping[str, IngestError]


def summaries(contracts: Sequence[Contract], lake: str, checkpoints: str, bootstrap_servers: str, hours: float, now_s: float) -> Summaries:
    """The summaries of these contracts' tables on a local lake. The broker has 2 s to answer, else the lag is unknown."""
    found, errors = [], {}
    known = answers(KafkaOptions.from_environment(bootstrap_servers), [contract.source for contract in contracts])
    for contract, answer in zip(contracts, known, strict=True):
        places = Places(lake, checkpoints, contract.pipeline, contract.table)
        try:
            found.append(summary(contract, places, answer, hours))
        except IngestError as error:
            errors[contract.name] = error
    return Summaries(iso(now_s), tuple(found), errors)


def summary(contract: Contract, places: Places, answer: Answer, hours: float = HOURS_DEFAULT) -> Summary:
    """The summary of one table on a local lake. `answer` is as for `status`.

    Raises Refused LOG_TORN or LEDGER_UNREADABLE, InvalidEnvironment AUDITED_DAMAGED, and Unreadable.
    """
    logs = Logs.of(places)
    # A run may commit, and add to the ledger, at any time. The ledger is read at one version, then the target's log: every batch after
    # the newest of that version is late, so each batch is counted once and a counter never falls.
    tables = OpenTables(places)
    ledger = LedgerReader(tables)
    state = read_start_state(None, places, logs, (lambda: answer) if isinstance(answer, tuple) else None)
    lines, _ = unwritten(logs, places.name, tables.version("ledger"))
    late = len({line.batch_id for line in lines if line.posting.why == "batch"})
    ledger.add(lines if late <= LATE_MAX else ())
    hidden = any(column.sensitive for column in contract.columns)
    return Summary(
        contract.name,
        status_of(contract, places, logs, state, answer, holder(places.root)),
        ledger.figures(hours),
        late,
        late > LATE_MAX,
        recent_batches(tables, ledger),
        quarantine_reasons(tables, contract.source.topic, hidden=hidden),
        hidden,
        quality_runs(tables, places),
        docs_index(places),
        last_proof(places),
        audit_state(LocalFiles(), places),
        tables.stored(),
    )
