"""How to reach Kafka: options from the environment, for Spark's connector and for kafka-python. Secrets stay in here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.errors import InvalidInput

PREFIX = "INGEST_KAFKA_"
# The engine sets these itself; a user's value would change what is promised.
OWNED: tuple[str, ...] = ("group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "bootstrap.servers")
OWNED += ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes")


@dataclass(frozen=True)
class KafkaOptions:
    """Brokers and client options by their Java names (`security.protocol`, `sasl.jaas.config`, …)."""

    bootstrap_servers: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_environment(bootstrap_servers: str, environment: Mapping[str, str] = os.environ) -> KafkaOptions:
        """`INGEST_KAFKA_SASL_MECHANISM=…` becomes `sasl.mechanism`. Raises InvalidInput for options that the engine owns."""
        found = {
            name.removeprefix(PREFIX).lower().replace("_", "."): value for name, value in environment.items() if name.startswith(PREFIX)
        }
        for name in OWNED:
            if name in found:
                raise InvalidInput(
                    "KAFKA_OPTION_OWNED",
                    f"the environment sets {PREFIX}{name.upper().replace('.', '_')}.",
                    expected=f"no value for {name}: the engine sets it, or the promises would not hold.",
                    remedy="unset it; isolation level and starting offsets belong into the contract, brokers into --bootstrap-servers.",
                )
        return KafkaOptions(bootstrap_servers, found)

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **{f"kafka.{name}": value for name, value in self.options.items()}}

    def for_python(self) -> dict[str, Any]:
        """The same connection as arguments of kafka-python's clients."""
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers.split(",")}
        names = {
            "security.protocol": "security_protocol",
            "sasl.mechanism": "sasl_mechanism",
            "client.id": "client_id",
        }
        arguments.update({python: self.options[java] for java, python in names.items() if java in self.options})
        if self.options.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in self.options:
            arguments["ssl_cafile"] = self.options["ssl.truststore.location"]
        if self.options.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in self.options:
            arguments["ssl_certfile"] = arguments["ssl_keyfile"] = self.options["ssl.keystore.location"]
        if self.options.get("ssl.endpoint.identification.algorithm") == "":
            arguments["ssl_check_hostname"] = False
        jaas = self.options.get("sasl.jaas.config", "")
        for java, python in (("username", "sasl_plain_username"), ("password", "sasl_plain_password")):
            if match := re.search(rf'\b{java}="((?:[^"\\]|\\.)*)"', jaas):
                arguments[python] = re.sub(r"\\(.)", r"\1", match.group(1))
        return arguments
