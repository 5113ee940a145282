"""Kafka failures, with one code per cause, no matter whether our own request finds the failure before a run or Spark during it.

No error quotes a client's message: some messages repeat settings, and settings contain passwords.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

from kafka.errors import IllegalSaslStateError, KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, RunStopped

OPTIONS = "INGEST_KAFKA_* variables"

# Problems with a certificate: description and remedy.
_CERTIFICATE = {
    "expired": ("has expired", "have the broker's certificate renewed; if it is new, set this machine's clock."),
    "early": ("is not valid yet", "set this machine's clock, or wait until the certificate is valid."),
    "other host": (
        "was issued for another host",
        "name the broker in --bootstrap-servers as its certificate does, or have a certificate issued for this name.",
    ),
    "untrusted": (
        "is signed by an authority that is not trusted here",
        "set INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION to a PEM file with the authority that signed it (…_SSL_TRUSTSTORE_TYPE=PEM).",
    ),
}
# The same problems as OpenSSL's codes (x509_vfy.h), which Python exposes as verify_code. Any other code means "untrusted".
_OPENSSL = {10: "expired", 9: "early", 62: "other host", 64: "other host"}
# The same problems in the messages of Java's TLS, searched in this order. "NotAfter: …" and "NotBefore: …" give the violated date.
_JAVA = {
    "expired": re.compile(r"CertificateExpiredException|NotAfter: |certificate_expired", re.IGNORECASE),
    "early": re.compile(r"CertificateNotYetValidException|NotBefore: "),
    "other host": re.compile(r"No subject alternative|No name matching|doesn't match any of the subject alternative"),
    "untrusted": re.compile("PKIX"),
}

# Kinds of authorization errors, with the text that follows the topic's name in our error.
_FORBIDDEN = {"Topic": "", "Group": " with a consumer group of Spark's (spark-kafka-source-…)", "Cluster": " (Kafka names the cluster)"}
# A chain of exception causes can be circular.
_CAUSES_MAX = 20
_JAVA_ERROR = "org.apache.kafka.common.errors."
# Spark's message if a poll returns nothing within `kafkaConsumer.pollTimeoutMs`.
_SPARK_POLLED = "java.util.concurrent.TimeoutException: Cannot fetch record for offset"


@dataclass(frozen=True)
class KafkaFailure:
    """The code and the three texts of an error: InvalidEnvironment before the first batch, RunStopped after it."""

    code: str
    found: str
    expected: str
    remedy: str

    def environment_error(self) -> InvalidEnvironment:
        """The error of a run that has not started (exit 4)."""
        return InvalidEnvironment(self.code, f"{self.found}.", expected=self.expected, remedy=self.remedy)

    def stopped(self, table: str) -> RunStopped:
        """The error of a run that had started (exit 5)."""
        # The topic existed when the run started. A recreated topic has different records at the table's offsets.
        recreated = f"if it was deleted and recreated, `ingest seek {table} --to earliest` reads the new one."
        remedy = recreated if self.code == "TOPIC_UNKNOWN" else f"{self.remedy} Then run again: it continues where it stopped."
        return RunStopped(self.code, f"{table}: {self.found}.", expected=self.expected, remedy=remedy)


def authentication(kafka: KafkaOptions, server: str, how: str = "") -> KafkaFailure:
    """The broker refuses our login."""
    mechanism = kafka.options.get("sasl.mechanism", "no SASL mechanism")
    who = f"the user {kafka.user!r} ({mechanism})" if kafka.user is not None else "a client without a login"
    return KafkaFailure(
        "KAFKA_AUTHENTICATION",
        f"the Kafka broker {server} refused {who}{how}",
        "a user, password and mechanism that the broker accepts.",
        "correct INGEST_KAFKA_SASL_USERNAME, INGEST_KAFKA_SASL_PASSWORD, INGEST_KAFKA_SASL_MECHANISM and INGEST_KAFKA_SECURITY_PROTOCOL.",
    )


def certificate(server: str, why: str) -> KafkaFailure:
    """The broker's certificate is not trusted; `why` is a key of _CERTIFICATE."""
    problem, remedy = _CERTIFICATE[why]
    return KafkaFailure(
        "KAFKA_CERTIFICATE", f"the certificate of the Kafka broker {server} {problem}", "a certificate that is trusted.", remedy
    )


def no_tls(server: str, problem: str) -> KafkaFailure:
    """TLS fails for a reason other than the broker's certificate."""
    remedy = "compare INGEST_KAFKA_SECURITY_PROTOCOL with the listener at that port, and check the files that INGEST_KAFKA_SSL_* name."
    return KafkaFailure("KAFKA_CERTIFICATE", f"no TLS with the Kafka broker {server}: {problem}", "a TLS connection.", remedy)


def forbidden(kafka: KafkaOptions, resource: str) -> KafkaFailure:
    """The broker knows the user, but does not let it read."""
    who = f"user {kafka.user!r}" if kafka.user is not None else "client"
    return KafkaFailure(
        "KAFKA_FORBIDDEN",
        f"the Kafka brokers {kafka.bootstrap_servers} do not let this {who} read {resource}",
        "the rights Describe and Read on the topic (without Describe, a broker gives the same answer for a topic that does not exist).",
        "correct source.topic in the contract, or grant them: kafka-acls --add --allow-principal User:… --operation Read --topic ….",
    )


def topic_unknown(kafka: KafkaOptions, topic: str) -> KafkaFailure:
    """The topic does not exist."""
    return KafkaFailure(
        "TOPIC_UNKNOWN",
        f"the Kafka brokers {kafka.bootstrap_servers} have no topic {topic!r}",
        "an existing topic.",
        "create the topic, or correct source.topic in the contract or --bootstrap-servers.",
    )


def no_topic_like(kafka: KafkaOptions, pattern: str) -> KafkaFailure:
    """No topic has a name of this pattern."""
    return KafkaFailure(
        "TOPIC_UNKNOWN",
        f"the Kafka brokers {kafka.bootstrap_servers} have no topic whose name matches {pattern!r}",
        "at least one topic that this user may describe.",
        "create the topic, or correct source.topic_pattern in the contract or --bootstrap-servers.",
    )


def unreachable(server: str, why: str) -> KafkaFailure:
    """The broker gives no answer, or no usable one."""
    return KafkaFailure(
        "BROKER_UNREACHABLE",
        f"no answer from the Kafka broker {server} ({why})",
        "a broker that answers.",
        f"check --bootstrap-servers and the {OPTIONS}; `ingest broker start` starts an embedded broker.",
    )


def from_python(kafka: KafkaOptions, server: str, error: BaseException, *, greeted: bool) -> KafkaFailure:
    """The failure behind an error of kafka-python. `greeted`: the broker had sent its API versions, which it does before any login."""
    if isinstance(error, UnsupportedSaslMechanismError):
        return authentication(kafka, server, ", whose mechanism it does not offer")
    if isinstance(error, IllegalSaslStateError):
        return authentication(kafka, server, ": its listener accepts no login")
    # ValueError: the broker could not prove that it knows the password (SCRAM is mutual).
    if isinstance(error, (SaslAuthenticationFailedError, ValueError)):
        return authentication(kafka, server)
    tls = next((one for one in (error, error.__context__, *error.args) if isinstance(one, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return certificate(server, _OPENSSL.get(tls.verify_code, "untrusted"))
    if tls is not None:
        return no_tls(server, (getattr(tls, "reason", None) or type(tls).__name__).replace("_", " ").lower())
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return no_tls(server, f"a file that an INGEST_KAFKA_SSL_* variable names cannot be read ({error.strerror})")
    if greeted and "disconnected" in str(error):
        # After a failed login, a broker sends its answer and closes the connection at once, and the client drops the answer.
        return authentication(kafka, server)
    return unreachable(server, type(error).__name__ if not isinstance(error, KafkaError) else _reason(error))


def from_java(kafka: KafkaOptions, topic: str, text: str) -> KafkaFailure | None:
    """The Kafka failure that the text of a Java exception and its causes names, or None."""
    servers = kafka.bootstrap_servers
    named = set(re.findall(re.escape(_JAVA_ERROR) + r"(\w+)", text))
    if "SslAuthenticationException" in named:
        why = next((why for why, words in _JAVA.items() if words.search(text)), None)
        return no_tls(servers, "the handshake failed") if why is None else certificate(servers, why)
    if named & {"SaslAuthenticationException", "UnsupportedSaslMechanismException", "IllegalSaslStateException"}:
        return authentication(kafka, servers)
    for kind, more in _FORBIDDEN.items():
        if f"{kind}AuthorizationException" in named:
            return forbidden(kafka, f"the topic {topic!r}{more}")
    if "UnknownTopicOrPartitionException" in named:
        return topic_unknown(kafka, topic)
    if named & {"TimeoutException", "DisconnectException", "NetworkException"} or _SPARK_POLLED in text:
        return unreachable(servers, "Spark's attempts timed out")
    return None


def everything_said(error: BaseException) -> str:
    """The text of an exception and of all its causes, as far as Python and PySpark expose them."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None and len(texts) < _CAUSES_MAX:
        texts.append(f"{at} {getattr(at, '_stackTrace', '')}")
        at = getattr(at, "_cause", None) or at.__cause__
    return "\n".join(texts)


def _reason(error: KafkaError) -> str:
    """The name of a system error in the client's message (`ECONNREFUSED`), else the class of the error."""
    if "disconnected" in str(error):
        return "it closed the connection, as a TLS listener does if the client does not use TLS"
    word = re.search(r"\bE[A-Z]{3,}\b|DNS Resolution failure", str(error))
    return word.group(0) if word else type(error).__name__
