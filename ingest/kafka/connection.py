"""How this package creates, bounds and closes kafka-python producers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import KafkaConfigurationError, KafkaError, KafkaTimeoutError
from kafka.protocol.metadata import MetadataRequest

from ingest.kafka import broker_request
from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput

CLOSE_WITHIN_S: Final = 2.0
_GREETED_WITHIN_S: Final = 10.0
_logger: Final = logging.getLogger("kafka")
_asking = threading.Lock()
_asked_by, _level = 0, logging.NOTSET  # the log level is global: the first thread to enter saves it, the last to leave restores it


def as_options(kafka: KafkaOptions | str) -> KafkaOptions:
    """Convert `host:port,…` to options; return given options unchanged."""
    return KafkaOptions(kafka) if isinstance(kafka, str) else kafka


def greet(kafka: KafkaOptions) -> None:
    """Log in to a secured broker once, to get the reason if it refuses. kafka-python retries until its deadline and reports a timeout.

    Raises InvalidEnvironment KAFKA_AUTHENTICATION, KAFKA_CERTIFICATE or BROKER_UNREACHABLE, InvalidInput KAFKA_OPTION_UNUSABLE.
    """
    if kafka.protocol == "PLAINTEXT":
        return
    nothing = MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
    )
    with quiet():
        broker_request.ask(kafka, nothing, _GREETED_WITHIN_S)


@contextmanager
def quiet() -> Iterator[None]:
    """Restore the level of the `kafka` logger after requests that silence the client's warnings. The log belongs to the service."""
    global _asked_by, _level
    with _asking:
        if _asked_by == 0:
            _level = _logger.level
        _asked_by += 1
    try:
        yield
    finally:
        with _asking:
            _asked_by -= 1
            if _asked_by == 0:
                _logger.setLevel(_level)


def producer(kafka: KafkaOptions, options: dict[str, Any]) -> Any:
    """Connect a KafkaProducer. With a transactional id it calls init_transactions, which aborts a transaction that a predecessor left open.

    Raises InvalidEnvironment BROKER_UNREACHABLE, InvalidInput CLIENT_OPTIONS and the errors of `greet`.
    """
    known(options, KafkaProducer)
    greet(kafka)
    made = None
    try:
        made = KafkaProducer(**{**kafka.for_python(), **options})
        if options.get("transactional_id") is not None:
            _never_ask_for_another_epoch(made)
            made.init_transactions()
    except BaseException as error:
        if made is not None:
            end(made)
        if isinstance(error, KafkaConfigurationError | ValueError):
            raise refused(kafka, error) from error
        if not isinstance(error, KafkaError):
            raise
        raise InvalidEnvironment(
            "BROKER_UNREACHABLE",
            f"no producer at {kafka.bootstrap_servers}: {kafka.without_secrets(repr(error))}.",
            expected="a Kafka broker of version 2.5 or later that answers and grants access.",
            remedy="check the address and the rights; `ingest broker start` starts an embedded broker.",
        ) from error
    return made


def known(options: Mapping[str, Any], client: Any) -> None:
    """Raise InvalidInput CLIENT_OPTIONS for options that the client does not have. The client's own error would show their values."""
    if unknown := sorted(options.keys() - client.DEFAULT_CONFIG.keys()):
        found, remedy = f"{client.__name__} has no option {', '.join(unknown)}.", "correct the name; write options with _ in place of dots."
        raise InvalidInput("CLIENT_OPTIONS", found, expected="options of kafka-python.", remedy=remedy)


def refused(kafka: KafkaOptions, error: BaseException) -> InvalidInput:
    """The error for options that contradict each other, with the client's message."""
    return InvalidInput(
        "CLIENT_OPTIONS",
        f"kafka-python refuses the options: {kafka.without_secrets(str(error))}.",
        expected="options that fit each other, and those that the delivery mode sets.",
        remedy="correct the option that is named, or leave it out.",
    )


def _never_ask_for_another_epoch(made: Any) -> None:
    """Make a refused epoch a fatal error; kafka-python 3.0.12 would continue with a new epoch (KIP-360).

    It requests the new epoch (InitProducerId) silently in its own thread, even for a fenced producer. While the successor has an open
    transaction, the broker does not compare epochs in that request (TransactionCoordinator, state Ongoing): it aborts that transaction
    and fences the successor. Brokers before 2.7 even return the id to the zombie. With this patch the error is fatal, as on older brokers.
    """
    made._transaction_manager._supports_epoch_bump = lambda: False


def hand_over(made: Any, topic: str, *record: Any) -> Any:
    """Send a record and return its future. kafka-python waits for an unknown topic and does not name it in its error; this does."""
    try:
        return made.send(topic, *record)
    except KafkaTimeoutError as error:
        if topic in made._metadata.topics():
            raise
        within_s = made.config["max_block_ms"] / 1000
        what = f"no broker reported the partitions of topic {topic!r} within {within_s:g} s: it does not exist, or no broker answers"
        raise KafkaTimeoutError(what) from error


def end(made: Any) -> None:
    """Close a producer at once and discard its unsent records: it must not send them later."""
    # close() flushes first. If that fails, it returns without stopping the sender thread, which would continue to send.
    made._sender.force_close()
    with suppress(KafkaError):
        made.close(timeout=CLOSE_WITHIN_S)


def answered(made: Any, ask: Callable[[Any], Any], within_s: float) -> None:
    """Start an operation of the transaction manager and wait for its result. Raises the broker's error or TimeoutError.

    commit_transaction() and similar methods wait without a timeout: forever, if the producer is closed.
    """
    result = ask(made._transaction_manager)
    made._sender.wakeup()
    if not result.wait(timeout_ms=max(within_s, 0) * 1000):
        raise TimeoutError(f"no answer within {within_s:g} s")
