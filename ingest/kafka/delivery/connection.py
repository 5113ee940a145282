"""Producers of kafka-python as this package makes, bounds and ends them."""

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
_asked_by, _level = 0, logging.NOTSET  # the level is one for all threads: the first one in takes it, the last one out puts it back


def as_options(kafka: KafkaOptions | str) -> KafkaOptions:
    """`host:port,…` as options; given options as they are."""
    return KafkaOptions(kafka) if isinstance(kafka, str) else kafka


def greet(kafka: KafkaOptions) -> None:
    """Have a secured broker say what is wrong with a login: kafka-python tries again until its deadline, and calls that a time-out.

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
    """For questions that are asked without the client's own warnings: they silence its log for good, and a service's log is its own."""
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
    """A connected KafkaProducer; with a transactional id its transactions are initialised, which aborts what a former one left open.

    Raises InvalidEnvironment BROKER_UNREACHABLE, InvalidInput CLIENT_OPTIONS and what `greet` raises.
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
            expected="a Kafka broker of version 2.5 or later that answers and lets us in.",
            remedy="check the address and the rights; `ingest broker start` starts an embedded broker.",
        ) from error
    return made


def known(options: Mapping[str, Any], client: Any) -> None:
    """Raises InvalidInput CLIENT_OPTIONS for options that the client does not have: its own error would show their values."""
    if unknown := sorted(options.keys() - client.DEFAULT_CONFIG.keys()):
        found, remedy = f"{client.__name__} has no option {', '.join(unknown)}.", "correct the name; options are spelled with _ for . here."
        raise InvalidInput("CLIENT_OPTIONS", found, expected="options of kafka-python.", remedy=remedy)


def refused(kafka: KafkaOptions, error: BaseException) -> InvalidInput:
    """What the client says of options that contradict each other."""
    return InvalidInput(
        "CLIENT_OPTIONS",
        f"kafka-python refuses the options: {kafka.without_secrets(str(error))}.",
        expected="options that fit each other, and those that the delivery mode sets.",
        remedy="correct the one that is named, or leave it out.",
    )


def _never_ask_for_another_epoch(made: Any) -> None:
    """A transactional producer whose epoch is refused has come to its end; kafka-python 3.0.12 would go on with a new one (KIP-360).

    It asks for it (InitProducerId) unseen, in its own thread, also for a producer that was fenced. While the successor has a
    transaction open the broker compares no epochs in that request (TransactionCoordinator, state Ongoing): it aborts that transaction
    and fences the successor. Brokers before 2.7 even give the zombie its id back. With this such an error is fatal, as on older brokers.
    """
    made._transaction_manager._supports_epoch_bump = lambda: False


def hand_over(made: Any, topic: str, *record: Any) -> Any:
    """A record to the producer; returns its future. kafka-python waits for a topic that it does not know, and then does not name it."""
    try:
        return made.send(topic, *record)
    except KafkaTimeoutError as error:
        if topic in made._metadata.topics():
            raise
        within_s = made.config["max_block_ms"] / 1000
        what = f"no broker told the partitions of topic {topic!r} within {within_s:g} s: it does not exist, or no broker answers"
        raise KafkaTimeoutError(what) from error


def end(made: Any) -> None:
    """Close a producer at once, whatever it still holds: what is not sent by now must not be sent by it later."""
    # close() flushes first and gives up without stopping its thread when that fails: the thread would go on sending.
    made._sender.force_close()
    with suppress(KafkaError):
        made.close(timeout=CLOSE_WITHIN_S)


def answered(made: Any, ask: Callable[[Any], Any], within_s: float) -> None:
    """Have the transaction manager begin something, and wait for its end; raises what the broker said, or TimeoutError.

    commit_transaction() and its like do the same and wait without end: for good, once the producer is closed.
    """
    result = ask(made._transaction_manager)
    made._sender.wakeup()
    if not result.wait(timeout_ms=max(within_s, 0) * 1000):
        raise TimeoutError(f"no answer within {within_s:g} s")
