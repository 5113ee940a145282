"""Kafka connection options from the environment, for Spark's connector and for kafka-python. This module keeps secrets out of texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.kafka.jaas import Login
from ingest.runtime.errors import InvalidInput

PREFIX = "INGEST_KAFKA_"
# The engine sets these itself; a user's value could break its guarantees.
OWNED: tuple[str, ...] = ("group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "bootstrap.servers")
OWNED += ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Options whose values must never be shown.
SECRET = re.compile(r"password|secret|token|jaas|keystore[.]key", re.IGNORECASE)
SECRET_LETTERS_MIN = 5


@dataclass(frozen=True)
class KafkaOptions:
    """The bootstrap servers, and client options by their Java names (`security.protocol`, `sasl.jaas.config`, …)."""

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
        return KafkaOptions(bootstrap_servers, found)

    def for_spark(self) -> dict[str, str]:
        """The options for Spark's Kafka source."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **{f"kafka.{name}": value for name, value in self.options.items()}}

    @property
    def user(self) -> str | None:
        """The user's name, for error messages; None without a SASL login."""
        return self._login.username if self.protocol.startswith("SASL") else None

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
            arguments.update(self._sasl())
        return arguments

    def without_secrets(self, text: str) -> str:
        """The text with every secret of these options replaced by `[hidden]`, for messages of Spark and Kafka that we repeat."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, "[hidden]")
        return text

    @property
    def _login(self) -> Login:
        return Login.parse(self.options.get("sasl.jaas.config", ""))

    def _secrets(self) -> set[str]:
        named = {value for name, value in self.options.items() if SECRET.search(name)}
        within = {value for name, value in self._login.options.items() if name != "username"}
        # Shorter values ("true", "p") occur in ordinary text.
        return {value for value in named | within if len(value) >= SECRET_LETTERS_MIN and value.lower() != "false"}

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

    def _sasl(self) -> dict[str, Any]:
        mechanism, login = self.options.get("sasl.mechanism", "GSSAPI"), self._login
        if mechanism not in MECHANISMS:
            raise _unusable(f"sasl.mechanism is {mechanism}", f"one of {', '.join(MECHANISMS)}")
        if login.username is None or login.password is None:
            raise _unusable("sasl.jaas.config contains no username and password", '`<login module> required username="…" password="…";`')
        return {"sasl_mechanism": mechanism, "sasl_plain_username": login.username, "sasl_plain_password": login.password}


def _unusable(found: str, expected: str) -> InvalidInput:
    return InvalidInput(
        "KAFKA_OPTION_UNUSABLE",
        f"{found}, which Spark supports, but our own requests to the broker do not.",
        expected=f"{expected}.",
        remedy=f"correct the {PREFIX}* variable; docs/how-to/secure-kafka.md has an example.",
    )
