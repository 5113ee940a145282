"""Kafka options from the environment: mapped for Spark and kafka-python; the engine's own are refused; secrets are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.kafka.kafka_options import OWNED, KafkaOptions
from ingest.run.table_query import LARGE, PATIENCE, PROMPT
from ingest.runtime.errors import InvalidInput

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s3\\"cr\\\\et; =";'
ENVIRONMENT = {
    "INGEST_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "INGEST_KAFKA_SASL_MECHANISM": "PLAIN",
    "INGEST_KAFKA_SASL_USERNAME": "ann",
    "INGEST_KAFKA_SASL_PASSWORD": 's3"cr\\et; =',
    "INGEST_KAFKA_SSL_TRUSTSTORE_LOCATION": "/etc/ca.pem",
    "INGEST_KAFKA_SSL_TRUSTSTORE_TYPE": "PEM",
    "INGEST_LAKE": "lake",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
}


def test_options_reach_spark_under_their_java_names() -> None:
    options = KafkaOptions.from_environment("a:1,b:2", ENVIRONMENT).for_spark()
    assert options == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }


def test_the_same_options_reach_kafka_python_under_its_own_names() -> None:
    assert KafkaOptions.from_environment("a:1,b:2", ENVIRONMENT).for_python() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
        "sasl_plain_password": 's3"cr\\et; =',
        "ssl_cafile": "/etc/ca.pem",
    }


def test_a_plaintext_connection_needs_no_options() -> None:
    options = KafkaOptions.from_environment("a:1", {})
    assert (options.for_spark(), options.for_python()) == ({"kafka.bootstrap.servers": "a:1"}, {"bootstrap_servers": ["a:1"]})


def test_a_client_certificate_and_an_unchecked_host_name_are_passed_on() -> None:
    environment = {
        "INGEST_KAFKA_SECURITY_PROTOCOL": "ssl",
        "INGEST_KAFKA_SSL_KEY_PASSWORD": "of the key",
        "INGEST_KAFKA_SSL_KEYSTORE_TYPE": "pem",
        "INGEST_KAFKA_SSL_KEYSTORE_LOCATION": "/etc/me.pem",
        "INGEST_KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "",
    }
    assert KafkaOptions.from_environment("a:1", environment).for_python() == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SSL",
        "ssl_certfile": "/etc/me.pem",
        "ssl_keyfile": "/etc/me.pem",
        "ssl_password": "of the key",
        "ssl_check_hostname": False,
    }


def test_scram_is_passed_on_and_the_host_name_is_checked_by_default() -> None:
    found = KafkaOptions.from_environment("a:1", {**ENVIRONMENT, "INGEST_KAFKA_SASL_MECHANISM": "SCRAM-SHA-256"}).for_python()
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("SCRAM-SHA-256", "ann")
    assert "ssl_check_hostname" not in found, "kafka-python checks it by default"


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("SASL_MECHANISM", "GSSAPI", "sasl.mechanism is GSSAPI"),
        ("SSL_TRUSTSTORE_TYPE", "JKS", "a store of type JKS"),
        ("SSL_KEYSTORE_CERTIFICATE_CHAIN", "-----BEGIN CERTIFICATE-----", "certificates themselves"),
    ],
)
def test_an_option_that_only_the_java_client_supports_is_refused_with_an_alternative(option: str, value: str, shown: str) -> None:
    options = KafkaOptions.from_environment("a:1", {**ENVIRONMENT, f"INGEST_KAFKA_{option}": value})
    with pytest.raises(InvalidInput, match="KAFKA_OPTION_UNUSABLE") as refused:
        options.for_python()
    assert shown in refused.value.found and "s3" not in str(refused.value)


def test_secrets_are_removed_from_a_text_but_short_words_are_kept() -> None:
    options = KafkaOptions.from_environment("a:1", {**ENVIRONMENT, "INGEST_KAFKA_SSL_KEY_PASSWORD": "of the key"})
    text = options.without_secrets(f'it is true: {JAAS} and s3"cr\\et; = and of the key of ann')
    hidden = JAAS.partition("password=")[0] + "[hidden];"
    assert text == f"it is true: {hidden} and [hidden] and [hidden] of ann"


def test_even_a_short_password_is_removed_from_the_jaas_text() -> None:
    options = KafkaOptions.from_environment("a:1", {**ENVIRONMENT, "INGEST_KAFKA_SASL_PASSWORD": "true"})
    jaas = options.for_spark()["kafka.sasl.jaas.config"]
    assert options.without_secrets(f"it is true: {jaas}") == f"it is true: {jaas.partition('password=')[0]}[hidden];"


def test_a_jaas_option_is_refused_and_a_login_needs_user_name_and_password() -> None:
    with pytest.raises(InvalidInput, match="KAFKA_OPTION_OWNED") as refused:
        KafkaOptions.from_environment("a:1", {"INGEST_KAFKA_SASL_JAAS_CONFIG": JAAS})
    assert "INGEST_KAFKA_SASL_USERNAME" in refused.value.expected and "cr" not in refused.value.found.partition("CONFIG")[2]
    without = {name: value for name, value in ENVIRONMENT.items() if name != "INGEST_KAFKA_SASL_PASSWORD"}
    for needed in (KafkaOptions.for_spark, KafkaOptions.for_python):
        with pytest.raises(InvalidInput, match="KAFKA_OPTION_UNUSABLE"):
            needed(KafkaOptions.from_environment("a:1", without))


def test_a_line_break_in_a_password_does_not_end_the_jaas_text() -> None:
    options = KafkaOptions.from_environment("a:1", {**ENVIRONMENT, "INGEST_KAFKA_SASL_PASSWORD": "one\ntwo"})
    assert options.for_spark()["kafka.sasl.jaas.config"].endswith(' password="one\\ntwo";')


def test_on_databricks_the_login_module_is_that_of_its_own_kafka_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert KafkaOptions.from_environment("a:1", ENVIRONMENT).for_spark()["kafka.sasl.jaas.config"] == f"kafkashaded.{JAAS}"


@pytest.mark.parametrize("name", OWNED)
def test_an_option_that_the_engine_owns_is_refused_by_the_name_of_its_variable(name: str) -> None:
    """I1 depends on the isolation level and the offsets, so the environment cannot set them."""
    variable = f"INGEST_KAFKA_{name.upper().replace('.', '_')}"
    with pytest.raises(InvalidInput, match="KAFKA_OPTION_OWNED") as refused:
        KafkaOptions.from_environment("a:1", {variable: "s3cret"})
    assert variable in refused.value.found
    assert "s3cret" not in str(refused.value)


def test_printed_options_contain_no_secret() -> None:
    options = KafkaOptions.from_environment("a:1", ENVIRONMENT)
    for text in (repr(options), str(options), f"{options}"):
        assert "s3" not in text and "ann" not in text
        assert "a:1" in text


def test_the_page_lists_the_options_that_the_engine_sets_by_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "secure-kafka.md").read_text(encoding="utf-8")
    shown = {"kafka.max.partition.fetch.bytes": "8 MB"}
    for name, value in {**LARGE, **PROMPT, "kafka.default.api.timeout.ms": PATIENCE["kafka.default.api.timeout.ms"]}.items():
        assert f"`{name.removeprefix('kafka.')}` {shown.get(name, value)}" in page
