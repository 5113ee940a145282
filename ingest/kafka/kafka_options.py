"""Kafka connection options from the environment, for Spark's connector and for kafka-python. This module keeps secrets out of texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.runtime import databricks
from ingest.runtime.errors import InvalidInput

PREFIX = "INGEST_KAFKA_"
# The engine sets these itself; a user's value could break its guarantees.
OWNED: tuple[str, ...] = ("group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "bootstrap.servers")
OWNED += ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes")

# Each mechanism and the login module of Kafka's Java client.
MECHANISMS = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
USERNAME, PASSWORD, JAAS = "sasl.username", "sasl.password", "sasl.jaas.config"
# Options whose values must never be shown.
SECRET = re.compile(r"password|secret|token|jaas|keystore[.]key", re.IGNORECASE)
SECRET_LETTERS_MIN = 5


@dataclass(frozen=True)
class KafkaOptions:
    """The bootstrap servers, and client options by their Java names (`security.protocol`, …), plus `sasl.username` and `sasl.password`."""

    bootstrap_servers: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_environment(bootstrap_servers: str, environment: Mapping[str, str] = os.environ) -> KafkaOptions:
        """Read the options: `INGEST_KAFKA_SASL_MECHANISM=…` becomes `sasl.mechanism`.

        Raises InvalidInput KAFKA_OPTION_OWNED for options that the engine sets itself.
        """
        found = {
            name.removeprefix(PREFIX).lower().replace("_", "."): value for name, value in environment.items() if name.startswith(PREFIX)
        }
        for name in OWNED:
            if name in found:
                raise InvalidInput(
                    "KAFKA_OPTION_OWNED",
                    f"the environment sets {PREFIX}{name.upper().replace('.', '_')}.",
                    expected=f"no value for {name}: the engine sets it, because its guarantees depend on it.",
                    remedy="unset it; isolation level and starting offsets belong in the contract, brokers in --bootstrap-servers.",
                )
        if JAAS in found:
            raise InvalidInput(
                "KAFKA_OPTION_OWNED",
                f"the environment sets {PREFIX}SASL_JAAS_CONFIG.",
                expected=f"{PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD: the engine builds {JAAS} from them.",
                remedy="set these two instead.",
            )
        return KafkaOptions(bootstrap_servers, found)

    def for_spark(self) -> dict[str, str]:
        """The options for Spark's Kafka source. Raises InvalidInput KAFKA_OPTION_UNUSABLE for an incomplete login."""
        options = {name: value for name, value in self.options.items() if name not in (USERNAME, PASSWORD)}
        if self.protocol.startswith("SASL"):
            options[JAAS] = self._jaas()
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **{f"kafka.{name}": value for name, value in options.items()}}

    @property
    def user(self) -> str | None:
        """The user's name, for error messages; None without a SASL login."""
        return self.options.get(USERNAME) if self.protocol.startswith("SASL") else None

    @property
    def protocol(self) -> str:
        return self.options.get("security.protocol", "PLAINTEXT").upper()

    def for_python(self) -> dict[str, Any]:
        """The same connection as arguments for kafka-python's clients.

        Raises InvalidInput KAFKA_OPTION_UNUSABLE for options that only Java's clients support: the engine itself uses kafka-python.
        """
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers.split(",")}
        if "security.protocol" in self.options:
            arguments["security_protocol"] = self.protocol
        if "client.id" in self.options:
            arguments["client_id"] = self.options["client.id"]
        if self.protocol.endswith("SSL"):
            arguments.update(self._tls())
        if self.protocol.startswith("SASL"):
            mechanism, username, password = self._login()
            arguments |= {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
        return arguments

    def without_secrets(self, text: str) -> str:
        """The text with every secret of these options replaced by `[hidden]`, for messages of Spark and Kafka that we repeat."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "[hidden]")
        return text

    def _jaas(self) -> str:
        """The login as the JAAS text that Kafka's Java client expects."""
        mechanism, username, password = self._login()
        # Databricks renames the packages of its Kafka client.
        shaded = "kafkashaded." if databricks.runtime() is not None else ""
        module = f"{shaded}org.apache.kafka.common.security.{MECHANISMS[mechanism]}"
        return f'{module} required username="{_escaped(username)}" password="{_escaped(password)}";'

    def _secrets(self) -> set[str]:
        named = {value for name, value in self.options.items() if SECRET.search(name)}
        named |= {_escaped(value) for value in named}
        # Shorter values ("true", "p") occur in ordinary text. The JAAS text must not show them either.
        hidden = {value for value in named if len(value) >= SECRET_LETTERS_MIN and value.lower() != "false"}
        if PASSWORD in self.options:
            hidden.add(f'password="{_escaped(self.options[PASSWORD])}"')
        return hidden

    def _tls(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for store, argument in (("truststore", "ssl_cafile"), ("keystore", "ssl_certfile")):
            location = self.options.get(f"ssl.{store}.location")
            if location is None:
                if f"ssl.{store}.certificates" in self.options or f"ssl.{store}.certificate.chain" in self.options:
                    raise _unusable(f"ssl.{store}.* contains the certificates themselves", f"a file: ssl.{store}.location")
                continue
            kind = self.options.get(f"ssl.{store}.type", "JKS").upper()
            if kind != "PEM":
                raise _unusable(f"ssl.{store}.location names a store of type {kind}", f"PEM, with ssl.{store}.type=PEM")
            found[argument] = location
        if "ssl_certfile" in found:
            found["ssl_keyfile"] = found["ssl_certfile"]
            if "ssl.key.password" in self.options:
                found["ssl_password"] = self.options["ssl.key.password"]
        if self.options.get("ssl.endpoint.identification.algorithm") == "":
            found["ssl_check_hostname"] = False
        return found

    def _login(self) -> tuple[str, str, str]:
        mechanism = self.options.get("sasl.mechanism", "GSSAPI")
        if mechanism not in MECHANISMS:
            raise _unusable(f"sasl.mechanism is {mechanism}", f"one of {', '.join(MECHANISMS)}")
        username, password = self.options.get(USERNAME), self.options.get(PASSWORD)
        if username is None or password is None:
            raise InvalidInput(
                "KAFKA_OPTION_UNUSABLE",
                f"{self.protocol} needs a login, and {PREFIX}SASL_USERNAME or {PREFIX}SASL_PASSWORD is not set.",
                expected="both.",
                remedy="set them; docs/how-to/secure-kafka.md has an example.",
            )
        return mechanism, username, password


def _escaped(value: str) -> str:
    """The value inside the double quotes of a JAAS text."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def _unusable(found: str, expected: str) -> InvalidInput:
    return InvalidInput(
        "KAFKA_OPTION_UNUSABLE",
        f"{found}, which Spark supports, but our own requests to the broker do not.",
        expected=f"{expected}.",
        remedy=f"correct the {PREFIX}* variable; docs/how-to/secure-kafka.md has an example.",
    )
