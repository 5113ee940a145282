"""The producer of the sample: writes it to Kafka in transactions and logs its actions in a manifest.

It simulates a real upstream system: it retries, aborts, sends broken records, and sometimes does not know whether its commit
succeeded.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ingest.delivery.kafka.transactional import COMMIT_WITHIN_S
from ingest.lab.samples.manifest import Ending, Manifest, PoisonAt
from ingest.lab.samples.mix import Mix, SampleTopic, SampleTransaction, SourceOf, plan
from ingest.lab.samples.sender_process import Sender
from ingest.lab.samples.shop import ORDERS, PAYMENTS
from ingest.runtime.errors import InvalidInput, RunStopped

DEFAULT_TOPICS: Final = {ORDERS: "orders", PAYMENTS: "payments"}
ATTEMPTS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Produced:
    """The result of a producer run. The first four fields count records, the next three transaction attempts.

    `events` are distinct events in committed transactions, `retries` further copies of them. `seconds` is wall time without
    connecting. `unknown` transactions were sent again, so Kafka may contain their events once more than counted.
    """

    events: int
    retries: int
    poison: int
    aborted_records: int
    committed: int
    aborted: int
    unknown: int
    seconds: float


def produce_sample(
    bootstrap_servers: str,
    *,
    events: int,
    manifest: Path,
    poison: int = 0,
    seed: int = 1,
    duplicate_share: float = 0.05,
    aborted_share: float = 0.03,
    payment_share: float = 0.4,
    transaction_records: int = 1000,
    topics: Mapping[str, str] = DEFAULT_TOPICS,
    transactional_id: str | None = None,
    kafka_options: Mapping[str, Any] | None = None,
    commit_timeout_s: float = COMMIT_WITHIN_S,
    progress: Callable[[int], None] | None = None,
    source_of: SourceOf | None = None,
) -> Produced:
    """Write `events` distinct events, with retries, aborted events and poison (see `plan`), to existing topics.

    `topics` maps ORDERS and, if payments are wanted, PAYMENTS to topic names; with `source_of` (see `plan`) its keys are the topics of
    that source's events. `kafka_options` are added to kafka-python's (for example security). `progress` is called after each
    commit with the number of records sent so far.

    Raises InvalidEnvironment (BROKER_UNREACHABLE), InvalidInput (MANIFEST_EXISTS, TOPIC_UNKNOWN, SAMPLE_MIX), RunStopped
    (PRODUCER_FENCED, PRODUCER_GAVE_UP).
    """
    try:
        mix = Mix(events, poison, duplicate_share, aborted_share, payment_share, transaction_records)
    except ValueError as error:
        raise InvalidInput("SAMPLE_MIX", str(error), expected="valid counts and shares.", remedy="change the options named.") from error
    name = transactional_id or f"oncelake-sample-{uuid.uuid4()}"
    options = dict(kafka_options or {})
    with (
        Manifest(manifest) as log,
        Sender(bootstrap_servers, name, options, commit_timeout_s) as line,
        Sender(bootstrap_servers, f"{name}-aborting", options, commit_timeout_s) as aborting,
    ):
        known = {kind: SampleTopic(topic, line.partitions(topic)) for kind, topic in topics.items()}
        log.sample(seed=seed, topics={topic.name: topic.partitions for topic in known.values()})
        produced = _Run(log, line, aborting, progress).run(plan(mix, known, seed, source_of))
        log.done(asdict(produced))
    return produced


class _Run:
    """One run: commits one transaction after the other, and aborts the ones alongside with a second producer."""

    def __init__(self, log: Manifest, line: Sender, aborting: Sender, progress: Callable[[int], None] | None) -> None:
        self._log, self._line, self._aborting, self._progress = log, line, aborting, progress
        self._endings: dict[Ending, int] = {"committed": 0, "aborted": 0, "unknown": 0}
        self._sent = self._retries = self._poison = self._aborted_records = 0

    def run(self, transactions: Iterable[SampleTransaction]) -> Produced:
        started = time.monotonic()
        waiting = iter(transactions)
        following = [next(waiting, None)]
        while (transaction := following.pop()) is not None:
            # Plan the next transaction while the broker answers: planning takes about as long.
            self._commit(transaction, lambda: following.append(next(waiting, None)))
        good = self._sent - self._retries - self._poison
        committed, aborted, unknown = self._endings.values()
        seconds = round(time.monotonic() - started, 3)
        return Produced(good, self._retries, self._poison, self._aborted_records, committed, aborted, unknown, seconds)

    def _commit(self, transaction: SampleTransaction, meanwhile: Callable[[], None]) -> None:
        """Commit a transaction, inside its aborted one if it has one alongside."""
        lost = transaction.alongside
        if lost is None:
            self._until_committed(transaction, meanwhile)
        else:
            self._log.begin(lost, 1)
            with self._aborting.abandoned(lost.records):
                self._until_committed(transaction, meanwhile)
            self._end(lost, 1, "aborted", ())
            self._aborted_records += len(lost.records)
        self._sent += len(transaction.records)
        self._retries += transaction.retries
        self._poison += sum(record.poison is not None for record in transaction.records)
        if self._progress is not None:
            self._progress(self._sent)

    def _until_committed(self, transaction: SampleTransaction, meanwhile: Callable[[], None]) -> None:
        """Try up to ATTEMPTS_MAX times: after an abort or an unknown outcome, send all records again."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._log.begin(transaction, attempt)
            ending, poison_at = self._line.transact(transaction.records, meanwhile if attempt == 1 else lambda: None)
            self._end(transaction, attempt, ending, poison_at)
            if ending == "committed":
                return
        raise RunStopped(
            "PRODUCER_GAVE_UP",
            f"transaction {transaction.number} did not commit in {ATTEMPTS_MAX} attempts.",
            expected="a broker that answers.",
            remedy="repair the broker, then run the producer again with a new manifest and another seed.",
        )

    def _end(self, transaction: SampleTransaction, attempt: int, ending: Ending, poison_at: Iterable[PoisonAt]) -> None:
        self._log.end(transaction, attempt, ending, poison_at)
        self._endings[ending] += 1
