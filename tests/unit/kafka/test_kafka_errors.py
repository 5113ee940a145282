"""What Spark and kafka-python say of Kafka becomes one of few names, and no word of a client's is passed on."""

from __future__ import annotations

import ssl
from pathlib import Path

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
from ingest.pipeline.table_query import stopped
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
    ("text", "code", "told"),
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
def test_an_exception_of_kafkas_java_client_has_a_name_and_no_words_of_its_own(text: str, code: str, told: str) -> None:
    trouble = from_java(KAFKA, "orders", STREAM_FAILED + text)
    assert trouble is not None
    error = trouble.stopped("shop.orders")
    assert isinstance(error, RunStopped) and (error.code, error.exit_code) == (code, 5)
    assert error.found.startswith("shop.orders: ") and told in error.found and "broker1:9093" in error.found
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("java.security.cert.CertificateExpiredException: NotAfter: Mon Nov 16 08:28:32 UTC 2026", "has expired"),
        ("java.security.cert.CertificateNotYetValidException: NotBefore: Mon Nov 16 08:28:32 UTC 2099", "not valid yet"),
        ("sun.security.validator.ValidatorException: PKIX path building failed: unable to find valid certification path", "not trusted"),
        ("java.security.cert.CertificateException: No subject alternative names matching IP address 10.0.0.1 found", "another host"),
        ("javax.net.ssl.SSLHandshakeException: Received fatal alert: bad_certificate", "the handshake failed"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_from_the_causes(cause: str, told: str) -> None:
    text = f"{STREAM_FAILED}{ERRORS}SslAuthenticationException: SSL handshake failed\nCaused by: {cause}"
    trouble = from_java(KAFKA, "orders", text)
    assert trouble is not None and trouble.code == "KAFKA_CERTIFICATE"
    assert told in trouble.found


@pytest.mark.parametrize("text", ["", "java.lang.OutOfMemoryError: Java heap space", "a column named TopicAuthorizationException"])
def test_what_is_not_of_kafkas_client_is_left_to_others(text: str) -> None:
    assert from_java(KAFKA, "orders", text) is None


def verification(code: int) -> Exception:
    """As kafka-python raises it: its own error, with that of TLS behind it."""
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed")
    cause.verify_code = code
    error: Exception = KafkaConnectionError("Handshake failed: certificate verify failed")
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "greeted", "code", "told"),
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
def test_an_error_of_kafka_python_has_the_same_names(error: Exception, greeted: bool, code: str, told: str) -> None:
    environment_error = from_python(KAFKA, "broker1:9093", error, greeted=greeted).environment_error()
    assert isinstance(environment_error, InvalidEnvironment) and (environment_error.code, environment_error.exit_code) == (code, 4)
    assert told in environment_error.found and "broker1:9093" in environment_error.found
    assert SECRET not in str(environment_error)


def test_a_client_that_gives_no_login_is_told_so() -> None:
    trouble = from_python(PLAIN, "broker1:9092", KafkaConnectionError("socket disconnected"), greeted=True)
    assert (trouble.code, "a client without a login" in trouble.found) == ("KAFKA_AUTHENTICATION", True)


def test_a_stop_that_is_not_of_kafkas_making_is_told_without_the_password() -> None:
    (contract,) = load_contracts(REPOSITORY, ["orders"])
    found = stopped(contract, KAFKA, RuntimeError(f"cannot parse {KAFKA.for_spark()['kafka.sasl.jaas.config']}"))
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="ann" [hidden];'
    assert (found.code, found.found) == ("QUERY_FAILED", f"shop.orders: RuntimeError: cannot parse {login}")


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ("java.io.IOException: No space left on device\n\tat java.base/…", "no space left on device."),
        ("java.io.FileNotFoundException: /lake/a b/.x.crc (No space left on device)", "no space left on device for /lake/a b/.x.crc."),
        ("java.nio.file.FileSystemException: /lake/x: Disk quota exceeded", "disk quota exceeded."),
    ],
)
def test_a_full_disk_in_the_middle_of_a_run_has_its_name_however_deep_it_lies(java: str, found: str) -> None:
    error = RuntimeError("Job aborted due to stage failure")
    error.__cause__ = OSError(java)
    (contract,) = load_contracts(REPOSITORY, ["orders"])
    stop = stopped(contract, KAFKA, error)
    assert (stop.code, stop.exit_code, stop.found) == ("DISK_FULL", 5, f"shop.orders: {found}")


def test_causes_of_an_exception_are_read_even_if_they_go_in_a_circle() -> None:
    outer, inner = RuntimeError("outer"), OSError(f"{ERRORS}TimeoutException: x")
    outer.__cause__, inner.__cause__ = inner, outer
    trouble = from_java(PLAIN, "orders", everything_said(outer))
    assert trouble is not None and trouble.code == "BROKER_UNREACHABLE"
