"""Kafka errors from Spark and kafka-python become one of a few codes, and no client's own words are passed on."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)

from ingest.contract.definition import load_contracts
from ingest.kafka.kafka_errors import everything_said, from_java, from_python
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.query_failure import stopped
from ingest.runtime.errors import InvalidEnvironment, RunStopped

pytestmark = pytest.mark.unit

REPOSITORY = Path(__file__).resolve().parents[3]
SECRET = "s3cret-of-ann"
KAFKA = KafkaOptions(
    "broker1:9093",
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": SECRET,
    },
)
PLAIN = KafkaOptions("broker1:9092")
ERRORS = "org.apache.kafka.common.errors."
JAVA = "java.util.concurrent."
STREAM_FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: java.util.concurrent.ExecutionException: "


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        (f"{ERRORS}SaslAuthenticationException: Authentication failed: password {SECRET}", "KAFKA_AUTHENTICATION", "'ann' (SCRAM-SHA-256)"),
        (f"{ERRORS}UnsupportedSaslMechanismException: Client SASL mechanism", "KAFKA_AUTHENTICATION", "'ann' (SCRAM-SHA-256)"),
        (f"{ERRORS}TopicAuthorizationException: Not authorized to access topics: [orders]", "KAFKA_FORBIDDEN", "the topic 'orders'"),
        (f"{ERRORS}GroupAuthorizationException: Not authorized to access group: g", "KAFKA_FORBIDDEN", "consumer group"),
        (f"{ERRORS}ClusterAuthorizationException: Cluster authorization failed.", "KAFKA_FORBIDDEN", "cluster"),
        (f"{ERRORS}UnknownTopicOrPartitionException: This server does not host it", "TOPIC_UNKNOWN", "'orders'"),
        (f"{ERRORS}TimeoutException: Timed out waiting for a node assignment. Call: x", "BROKER_UNREACHABLE", "timed out"),
        (f"{JAVA}TimeoutException: Cannot fetch record for offset 7 in 60000 milliseconds", "BROKER_UNREACHABLE", "timed out"),
    ],
)
def test_an_exception_of_kafkas_java_client_maps_to_a_code_without_its_own_words(text: str, code: str, shown: str) -> None:
    failure = from_java(KAFKA, "orders", STREAM_FAILED + text)
    assert failure is not None
    error = failure.stopped("shop.orders")
    assert isinstance(error, RunStopped) and (error.code, error.exit_code) == (code, 5)
    assert error.found.startswith("shop.orders: ") and shown in error.found and "broker1:9093" in error.found
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("cause", "shown"),
    [
        ("java.security.cert.CertificateExpiredException: NotAfter: Mon Nov 16 08:28:32 UTC 2026", "has expired"),
        ("java.security.cert.CertificateNotYetValidException: NotBefore: Mon Nov 16 08:28:32 UTC 2099", "not valid yet"),
        ("sun.security.validator.ValidatorException: PKIX path building failed: unable to find valid certification path", "not trusted"),
        ("java.security.cert.CertificateException: No subject alternative names matching IP address 10.0.0.1 found", "another host"),
        ("javax.net.ssl.SSLHandshakeException: Received fatal alert: bad_certificate", "the handshake failed"),
    ],
)
def test_the_problem_with_a_certificate_is_read_from_the_exceptions_causes(cause: str, shown: str) -> None:
    text = f"{STREAM_FAILED}{ERRORS}SslAuthenticationException: SSL handshake failed\nCaused by: {cause}"
    failure = from_java(KAFKA, "orders", text)
    assert failure is not None and failure.code == "KAFKA_CERTIFICATE"
    assert shown in failure.found


@pytest.mark.parametrize("text", ["", "java.lang.OutOfMemoryError: Java heap space", "a column named TopicAuthorizationException"])
def test_an_error_from_outside_kafkas_client_is_not_a_kafka_failure(text: str) -> None:
    assert from_java(KAFKA, "orders", text) is None


def verification(code: int) -> Exception:
    """An error as kafka-python raises it, with the TLS error as its context."""
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_code = code
    error: Exception = KafkaConnectionError("Handshake failed: certificate verify failed")
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "greeted", "code", "shown"),
    [
        (SaslAuthenticationFailedError(f"invalid credentials {SECRET}"), True, "KAFKA_AUTHENTICATION", "refused the user 'ann'"),
        (UnsupportedSaslMechanismError(), True, "KAFKA_AUTHENTICATION", "does not offer"),
        (IllegalSaslStateError(), True, "KAFKA_AUTHENTICATION", "accepts no login"),
        (ValueError("Server sent wrong signature!"), True, "KAFKA_AUTHENTICATION", "refused the user 'ann'"),
        (KafkaConnectionError("socket disconnected"), True, "KAFKA_AUTHENTICATION", "refused the user 'ann'"),
        (KafkaConnectionError("socket disconnected"), False, "BROKER_UNREACHABLE", "closed the connection"),
        (KafkaConnectionError("111 ECONNREFUSED"), False, "BROKER_UNREACHABLE", "(ECONNREFUSED)"),
        (KafkaConnectionError("DNS Resolution failure"), False, "BROKER_UNREACHABLE", "DNS"),
        (KafkaTimeoutError("Timed out after 15000 ms"), False, "BROKER_UNREACHABLE", "(KafkaTimeoutError)"),
        (verification(10), False, "KAFKA_CERTIFICATE", "has expired"),
        (verification(9), False, "KAFKA_CERTIFICATE", "not valid yet"),
        (verification(19), False, "KAFKA_CERTIFICATE", "not trusted"),
        (verification(62), False, "KAFKA_CERTIFICATE", "another host"),
        (verification(64), False, "KAFKA_CERTIFICATE", "another host"),
        (ssl.SSLError(136, "no certificate or crl found"), False, "KAFKA_CERTIFICATE", "no TLS"),
        (FileNotFoundError(2, "No such file or directory"), False, "KAFKA_CERTIFICATE", "cannot be read (No such file or directory)"),
    ],
)
def test_an_error_of_kafka_python_maps_to_the_same_codes(error: Exception, greeted: bool, code: str, shown: str) -> None:
    environment_error = from_python(KAFKA, "broker1:9093", error, greeted=greeted).environment_error()
    assert isinstance(environment_error, InvalidEnvironment) and (environment_error.code, environment_error.exit_code) == (code, 4)
    assert shown in environment_error.found and "broker1:9093" in environment_error.found
    assert SECRET not in str(environment_error)


def test_a_failure_without_a_login_says_that_the_client_has_none() -> None:
    failure = from_python(PLAIN, "broker1:9092", KafkaConnectionError("socket disconnected"), greeted=True)
    assert (failure.code, "a client without a login" in failure.found) == ("KAFKA_AUTHENTICATION", True)


def test_a_failure_outside_kafka_is_named_by_place_and_class_without_its_text() -> None:
    """Its text may quote a record or a password."""
    (contract,) = load_contracts(REPOSITORY, ["orders"])
    with pytest.raises(pa.ArrowInvalid) as raised:
        pa.array(["card 4111"]).cast(pa.int64())
    assert "4111" in str(raised.value)
    raised.value.add_note("batch 3, offsets 0:[5,9)")
    error = stopped(contract, KAFKA, raised.value)
    assert (error.code, error.found) == ("QUERY_FAILED", "shop.orders: batch 3, offsets 0:[5,9), ArrowInvalid.")
    assert "4111" not in str(error) and "logs/" in error.remedy
    with pytest.raises(ValueError, match="4111") as own:
        OffsetRange(0, 4111, 7)
    assert re.fullmatch(r"shop\.orders: ValueError in ingest\.kafka\.offsets, line \d+\.", stopped(contract, KAFKA, own.value).found)


def test_an_executor_without_a_package_is_named_with_the_command_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (contract,) = load_contracts(REPOSITORY, ["orders"])
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    said = "Task 0 in stage 5.0 failed 4 times: Lost task 0.3 in stage 5.0 (TID 9) (node7 executor 2): PythonException: Traceback"
    error = stopped(contract, KAFKA, RuntimeError(f"{said}\nModuleNotFoundError: No module named 'msgspec'\n\tat org.apache"))
    assert (error.code, error.found) == ("WORKER_PACKAGE_MISSING", "shop.orders: the Python of executor 2 on node7 has no package msgspec.")
    assert error.remedy == "on node7: `/opt/python -m pip install msgspec`; then run again."


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ("java.io.IOException: No space left on device\n\tat java.base/…", "no space left on device."),
        ("java.io.FileNotFoundException: /lake/a b/.x.crc (No space left on device)", "no space left on device for /lake/a b/.x.crc."),
        ("java.nio.file.FileSystemException: /lake/x: Disk quota exceeded", "disk quota exceeded."),
    ],
)
def test_a_full_disk_during_a_run_is_named_even_if_it_is_a_nested_cause(java: str, found: str) -> None:
    error = RuntimeError("Job aborted due to stage failure")
    error.__cause__ = OSError(java)
    (contract,) = load_contracts(REPOSITORY, ["orders"])
    stop = stopped(contract, KAFKA, error)
    assert (stop.code, stop.exit_code, stop.found) == ("DISK_FULL", 5, f"shop.orders: {found}")


def test_the_causes_of_an_exception_are_read_even_if_they_form_a_cycle() -> None:
    outer, inner = RuntimeError("outer"), OSError(f"{ERRORS}TimeoutException: x")
    outer.__cause__, inner.__cause__ = inner, outer
    failure = from_java(PLAIN, "orders", everything_said(outer))
    assert failure is not None and failure.code == "BROKER_UNREACHABLE"
