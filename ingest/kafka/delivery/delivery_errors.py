"""What can go wrong between a producer or consumer and its promise, one class for each thing that the caller has to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.runtime.errors import InvalidInput, RunStopped

if TYPE_CHECKING:
    from collections.abc import Sequence


def named(error: BaseException) -> str:
    """An error with its class, which kafka-python's mostly say themselves."""
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name}: {text}"


class GuaranteeBroken(InvalidInput):
    """Thrown when options contradict a delivery mode; `guarantee` says in words what would no longer hold (exit 2)."""

    def __init__(self, mode: str, option: str, value: object, *, expected: str, guarantee: str) -> None:
        self.mode, self.option, self.guarantee = mode, option, guarantee
        super().__init__(
            "GUARANTEE_BROKEN",
            f"{option}={value!r} in delivery mode {mode}, which would break this: {guarantee}.",
            expected=f"{option}: {expected}.",
            remedy=f"leave {option} out, or choose the delivery mode that means it.",
        )


class ProducerFenced(RunStopped):
    """Thrown when the broker holds a newer producer for our transactional id. This producer is closed; never retry with it.

    The open transaction is or will be aborted. Only if its commit was asked for (`commit_asked`) it may be committed: the broker can have
    done it at once, its answer was lost, and the client's second try came after the fence. `timed_out` tells that the transaction was
    older than its timeout: then the broker may have aborted it by itself, which it reports in the same words.
    """

    def __init__(self, transactional_id: str, *, timed_out: bool = False, commit_asked: bool = False) -> None:
        self.transactional_id, self.timed_out, self.commit_asked = transactional_id, timed_out, commit_asked
        late = ", or the broker aborted the transaction, which was older than its timeout," if timed_out else ""
        asked = "; the transaction's commit was asked for, and may have been done before" if commit_asked else ""
        super().__init__(
            "PRODUCER_FENCED",
            f"another producer{late} took over the transactional id {transactional_id}{asked}.",
            expected="one producer at a time for a transactional id, and transactions shorter than their timeout.",
            remedy="let the other one go on, or give this one an id of its own; start anew from the committed offsets"
            + ("; against the timeout: fewer records in a transaction, or a longer transaction_timeout_ms." if timed_out else "."),
        )


class TransactionAborted(RunStopped):
    """Thrown when a transaction was not committed and never will be: no read_committed consumer sees it. Sending again is exact."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "TRANSACTION_ABORTED",
            f"the transaction was aborted: {why}.",
            expected="every record acknowledged and the group unchanged before the commit.",
            remedy="send the records again in a new transaction.",
        )


class OutcomeUnknown(RunStopped):
    """Thrown when a commit was asked for and not answered: the records are visible as a whole, or not at all, and we do not know which.

    `settled`: whether the producer was replaced since, so that nothing more can become of that transaction.
    """

    def __init__(self, transactional_id: str, *, settled: bool, why: str) -> None:
        self.transactional_id, self.settled = transactional_id, settled
        after = (
            "The producer was replaced: the transaction has ended either way"
            if settled
            else "No new producer could be started yet, so it may still be committed"
        )
        super().__init__(
            "OUTCOME_UNKNOWN",
            f"the commit of a transaction of {transactional_id} was not answered ({why}). {after}.",
            expected="an answer to the commit.",
            remedy="look whether the records are there before sending again, or send again with the same event ids and deduplicate.",
        )


class DeliveryFailed(RunStopped):
    """Thrown when records were not acknowledged; they may be in the log all the same. `errors` has one text for each record."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__(
            "DELIVERY_FAILED",
            f"{len(errors)} record(s) were not acknowledged (the first: {errors[0]}).",
            expected="an acknowledgement of every record.",
            remedy="send them again with the same event ids, so that those which did arrive are recognised.",
        )


class GroupMovedOn(TransactionAborted):
    """Thrown when the consumer group has gone on without us: our partitions may have other owners. Nothing of the work is visible."""


class StoreFailed(RunStopped):
    """Thrown when the store of seen ids cannot be read or written. That is no fault of a record: none becomes poison by it."""

    def __init__(self, path: str, error: BaseException) -> None:
        super().__init__(
            "SEEN_STORE",
            f"the ids in {path} cannot be read or written ({type(error).__name__}: {error}).",
            expected="an SQLite file on a local disk with room on it, for this consumer alone.",
            remedy="see to the file, and start again from the committed offsets.",
        )


class PoisonRecord(RunStopped):
    """Thrown when the work on one record fails again and again and there is no dead-letter topic, or makes what cannot be sent."""

    def __init__(self, topic: str, partition: int, offset: int, error: BaseException, attempts: int, *, unsendable: bool = False) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        where = f"record at {topic}[{partition}]@{offset}"
        found = f"the {where} failed {attempts} time(s), last with {type(error).__name__}: {error}."
        expected, remedy = "a record that can be worked on.", "correct the work, or give a dead-letter topic for such records."
        if unsendable:
            found = f"what was made of the {where} cannot be sent ({named(error)})."
            expected = "records with a key or a value, no larger than max_request_size and the brokers' message.max.bytes."
            remedy = "correct the work, or raise both limits (producer_options)."
        super().__init__("POISON_RECORD", found, expected=expected, remedy=remedy)
