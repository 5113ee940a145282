"""The errors of producers and consumers: one class for each different reaction of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.runtime.errors import InvalidInput, RunStopped

if TYPE_CHECKING:
    from collections.abc import Sequence


def named(error: BaseException) -> str:
    """The text of an error with its class name, which most kafka-python errors already contain."""
    name, text = type(error).__name__, str(error)
    return text if name in text else f"{name}: {text}"


class GuaranteeBroken(InvalidInput):
    """Thrown when options contradict a delivery mode; `guarantee` says in words what would go wrong (exit 2)."""

    def __init__(self, mode: str, option: str, value: object, *, expected: str, guarantee: str) -> None:
        self.mode, self.option, self.guarantee = mode, option, guarantee
        super().__init__(
            "GUARANTEE_BROKEN",
            f"{option}={value!r} breaks delivery mode {mode}: {guarantee}.",
            expected=f"{option}: {expected}.",
            remedy=f"leave {option} out, or choose a delivery mode that allows it.",
        )


class ProducerFenced(RunStopped):
    """Thrown when the broker knows a newer producer for our transactional id. This producer is closed; never retry with it.

    The open transaction is or will be aborted. Only if its commit was requested (`commit_asked`), it may have been committed: the broker
    committed, its answer was lost, and the client's retry arrived after the fencing. `timed_out`: the transaction was older than its
    timeout. Then the broker may have aborted the transaction itself, which it reports with the same error.
    """

    def __init__(self, transactional_id: str, *, timed_out: bool = False, commit_asked: bool = False) -> None:
        self.transactional_id, self.timed_out, self.commit_asked = transactional_id, timed_out, commit_asked
        late = ", or the broker aborted the transaction, which was older than its timeout," if timed_out else ""
        asked = "; the transaction's commit was requested, and may have been done before" if commit_asked else ""
        super().__init__(
            "PRODUCER_FENCED",
            f"another producer{late} took over the transactional id {transactional_id}{asked}.",
            expected="one producer at a time for a transactional id, and transactions shorter than their timeout.",
            remedy="let the other one continue, or give this one its own id; restart from the committed offsets"
            + ("; to avoid the timeout, use fewer records per transaction or a longer transaction_timeout_ms." if timed_out else "."),
        )


class TransactionAborted(RunStopped):
    """Thrown when a transaction was not committed and never will be: no read_committed consumer sees it. Sending again doubles nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "TRANSACTION_ABORTED",
            f"the transaction was aborted: {why}.",
            expected="every record acknowledged and the group unchanged before the commit.",
            remedy="send the records again in a new transaction.",
        )


class OutcomeUnknown(RunStopped):
    """Thrown when a commit was requested and not answered: either all records are visible or none, and the client cannot know which.

    `settled`: the producer was replaced, so the outcome of that transaction can no longer change.
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
            remedy="check whether the records are there before you send again, or send again with the same event ids and deduplicate.",
        )


class DeliveryFailed(RunStopped):
    """Thrown when records were not acknowledged; they may be in the log nevertheless. `errors` has one text per record."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__(
            "DELIVERY_FAILED",
            f"{len(errors)} record(s) were not acknowledged (the first: {errors[0]}).",
            expected="an acknowledgement of every record.",
            remedy="send them again with the same event ids, so that records that did arrive are recognised.",
        )


class GroupMovedOn(TransactionAborted):
    """Thrown when the consumer group has continued without us: our partitions may have other owners. None of the work is visible."""


class StoreFailed(RunStopped):
    """Thrown when the store of seen ids cannot be read or written. No record caused it, so none goes to the dead-letter topic."""

    def __init__(self, path: str, error: BaseException) -> None:
        super().__init__(
            "SEEN_STORE",
            f"the ids in {path} cannot be read or written ({type(error).__name__}: {error}).",
            expected="an SQLite file on a local disk with room on it, for this consumer alone.",
            remedy="repair the file or free disk space, then start again from the committed offsets.",
        )


class PoisonRecord(RunStopped):
    """Thrown when the work fails on one record in all attempts and there is no dead-letter topic, or when its output cannot be sent."""

    def __init__(self, topic: str, partition: int, offset: int, error: BaseException, attempts: int, *, unsendable: bool = False) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        where = f"record at {topic}[{partition}]@{offset}"
        found = f"the {where} failed {attempts} time(s), last with {type(error).__name__}: {error}."
        expected, remedy = "a record that can be processed.", "correct the work, or set a dead-letter topic for such records."
        if unsendable:
            found = f"the output for the {where} cannot be sent ({named(error)})."
            expected = "records with a key or a value, no larger than max_request_size and the brokers' message.max.bytes."
            remedy = "correct the work, or raise both limits (producer_options)."
        super().__init__("POISON_RECORD", found, expected=expected, remedy=remedy)
