"""What can be wrong between Kafka and us, each under one name, whoever noticed: our own question before a run, or Spark during it.

Nothing here quotes a client's message: some repeat settings, and settings hold passwords.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass

from kafka.errors import IllegalSaslStateError, KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, RunStopped

OPTIONS = "INGEST_KAFKA_* variables"

# What a certificate lacks, and what mends it.
_CERTIFICATE = {
    "expired": ("has expired", "have the broker's certificate renewed; if it is new, set this machine's clock."),
    "early": ("is not valid yet", "set this machine's clock, or wait until the certificate is valid."),
    "other host": (
        "was made for another host",
        "name the broker in --bootstrap-servers as its certificate does, or have a certificate made for this name.",
    ),
    "untrusted": (
        "is signed by an authority that is not trusted here",
        "let INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION name a PEM file with the authority that signed it (…_SSL_TRUSTSTORE_TYPE=PEM).",
    ),
}
# The same by OpenSSL's numbers (x509_vfy.h), which Python passes on as verify_code; any other is "untrusted".
_OPENSSL = {10: "expired", 9: "early", 62: "other host", 64: "other host"}
# And in the words of Java's TLS, looked for in this order. Both dates are told by "NotBefore: …" or "NotAfter: …".
_JAVA = {
    "expired": re.compile(r"CertificateExpiredException|NotAfter: |certificate_expired", re.IGNORECASE),
    "early": re.compile(r"CertificateNotYetValidException|NotBefore: "),
    "other host": re.compile(r"No subject alternative|No name matching|doesn't match any of the subject alternative"),
    "untrusted": re.compile("PKIX"),
}

# Of what Kafka's brokers forbid, more than the topic.
_FORBIDDEN = {"Topic": "", "Group": " with a consumer group of Spark's (spark-kafka-source-…)", "Cluster": " (Kafka names the cluster)"}
# A chain of causes may bite its tail.
_CAUSES_MAX = 20
_JAVA_ERROR = "org.apache.kafka.common.errors."
# Spark's own words where its poll has brought nothing in `kafkaConsumer.pollTimeoutMs`.
_SPARK_POLLED = "java.util.concurrent.TimeoutException: Cannot fetch record for offset"


@dataclass(frozen=True)
class KafkaFailure:
    """Code, and the three things that every message says; before the first batch it is an InvalidEnvironment, after it a RunStopped."""

    code: str
    found: str
    expected: str
    remedy: str

    def environment_error(self) -> InvalidEnvironment:
        """For a run that has not begun (exit 4)."""
        return InvalidEnvironment(self.code, f"{self.found}.", expected=self.expected, remedy=self.remedy)

    def stopped(self, table: str) -> RunStopped:
        """For a run that had begun (exit 5)."""
        # A topic that was there: one that is made anew has other records at the table's offsets.
        anew = f"if it was deleted and made again, `ingest seek {table} --to earliest` goes on with the new one."
        again = anew if self.code == "TOPIC_UNKNOWN" else f"{self.remedy} Then run again: it goes on where it stopped."
        return RunStopped(self.code, f"{table}: {self.found}.", expected=self.expected, remedy=again)


def authentication(kafka: KafkaOptions, server: str, how: str = "") -> KafkaFailure:
    """The broker does not take our login."""
    mechanism = kafka.options.get("sasl.mechanism", "no SASL mechanism")
    who = f"the user {kafka.user!r} ({mechanism})" if kafka.user is not None else "a client without a login"
    return KafkaFailure(
        "KAFKA_AUTHENTICATION",
        f"the Kafka broker {server} refused {who}{how}",
        "a user, password and mechanism that the broker takes.",
        "correct INGEST_KAFKA_SASL_JAAS_CONFIG, INGEST_KAFKA_SASL_MECHANISM and INGEST_KAFKA_SECURITY_PROTOCOL.",
    )


def certificate(server: str, why: str) -> KafkaFailure:
    """No trust between the broker and us, by a key of _CERTIFICATE."""
    what, remedy = _CERTIFICATE[why]
    return KafkaFailure(
        "KAFKA_CERTIFICATE", f"the certificate of the Kafka broker {server} {what}", "a certificate that is trusted.", remedy
    )


def no_tls(server: str, what: str) -> KafkaFailure:
    """TLS fails without a word about the broker's certificate."""
    remedy = (
        "compare INGEST_KAFKA_SECURITY_PROTOCOL with the listener at that port, and the files of INGEST_KAFKA_SSL_* with what they hold."
    )
    return KafkaFailure("KAFKA_CERTIFICATE", f"no TLS with the Kafka broker {server}: {what}", "a TLS connection.", remedy)


def forbidden(kafka: KafkaOptions, resource: str) -> KafkaFailure:
    """The user is known and may not."""
    who = f"user {kafka.user!r}" if kafka.user is not None else "client"
    return KafkaFailure(
        "KAFKA_FORBIDDEN",
        f"the Kafka brokers {kafka.bootstrap_servers} do not let this {who} read {resource}",
        "the rights Describe and Read on the topic (a broker that hides what it forbids says the same of a topic that is not there).",
        "correct source.topic in the contract, or grant them: kafka-acls --add --allow-principal User:… --operation Read --topic ….",
    )


def topic_unknown(kafka: KafkaOptions, topic: str) -> KafkaFailure:
    """No such topic."""
    return KafkaFailure(
        "TOPIC_UNKNOWN",
        f"the Kafka brokers {kafka.bootstrap_servers} have no topic {topic!r}",
        "an existing topic.",
        "create the topic, or correct source.topic in the contract or --bootstrap-servers.",
    )


def unreachable(server: str, why: str) -> KafkaFailure:
    """No answer, or none that helps."""
    return KafkaFailure(
        "BROKER_UNREACHABLE",
        f"no answer from the Kafka broker {server} ({why})",
        "a broker that answers.",
        f"check --bootstrap-servers and the {OPTIONS}; `ingest broker start` starts an embedded broker.",
    )


def from_python(kafka: KafkaOptions, server: str, error: BaseException, *, greeted: bool) -> KafkaFailure:
    """What kafka-python's error means; `greeted` is whether the broker had told its API versions, which needs no login."""
    if isinstance(error, UnsupportedSaslMechanismError):
        return authentication(kafka, server, ", whose mechanism it does not offer")
    if isinstance(error, IllegalSaslStateError):
        return authentication(kafka, server, ": its listener takes no login")
    # ValueError: a broker that could not prove that it knows the password either.
    if isinstance(error, (SaslAuthenticationFailedError, ValueError)):
        return authentication(kafka, server)
    tls = next((one for one in (error, error.__context__, *error.args) if isinstance(one, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return certificate(server, _OPENSSL.get(tls.verify_code, "untrusted"))
    if tls is not None:
        return no_tls(server, (getattr(tls, "reason", None) or type(tls).__name__).replace("_", " ").lower())
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return no_tls(server, f"a file of the INGEST_KAFKA_SSL_* variables cannot be read ({error.strerror})")
    if greeted and "disconnected" in str(error):
        # How a broker ends a login that fails: its answer and the end of the connection come together, and the client drops the answer.
        return authentication(kafka, server)
    return unreachable(server, type(error).__name__ if not isinstance(error, KafkaError) else _reason(error))


def from_java(kafka: KafkaOptions, topic: str, text: str) -> KafkaFailure | None:
    """What the text of a Java exception says of Kafka, its causes included; None if it names no error of Kafka's."""
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
        return unreachable(servers, "Spark's tries timed out")
    return None


def everything_said(error: BaseException) -> str:
    """The text of an exception and of all that caused it, as far as Python and PySpark hand them on."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None and len(texts) < _CAUSES_MAX:
        texts.append(f"{at} {getattr(at, '_stackTrace', '')}")
        at = getattr(at, "_cause", None) or at.__cause__
    return "\n".join(texts)


def _reason(error: KafkaError) -> str:
    """Of the client's own words only those that are a system error's name (`111 ECONNREFUSED`), else the kind of error."""
    if "disconnected" in str(error):
        return "it closed the connection, as a listener with TLS does to a client without"
    word = re.search(r"\bE[A-Z]{3,}\b|DNS Resolution failure", str(error))
    return word.group(0) if word else type(error).__name__
